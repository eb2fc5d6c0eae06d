"""llama.cpp's own HTTP server, from the prebuilt xllamacpp wheel. usage: xllama_server.py MODEL.gguf PORT [long]

`long`: for the requests of coding agents. The model is random, so a syllable ends its answer, and nothing of it is taken for a call.
"""
import sys
import time

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])
is_long = sys.argv[3:] == ["long"]
params.n_ctx = 65536 if is_long else 8192
params.n_parallel = 1 if is_long else 4
if is_long:
    params.antiprompt = ["a", " s", " t", " zo"]
    params.n_predict = 400
    params.force_pure_content_parser = True
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
