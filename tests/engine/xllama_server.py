"""llama.cpp's own HTTP server, from the prebuilt xllamacpp wheel. usage: xllama_server.py MODEL.gguf PORT"""
import sys
import time

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])
params.n_ctx = 8192
params.n_parallel = 4
params.warmup = False
try:
    params.cpuparams.n_threads = 1
except AttributeError:
    # An older wheel chooses by itself.
    pass
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
while True:
    time.sleep(3600)
