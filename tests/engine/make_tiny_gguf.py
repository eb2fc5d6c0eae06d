"""Writes a Llama of random weights, under 1 MB, with a vocabulary of its own: an engine to test against without a download.

usage: make_tiny_gguf.py OUT.gguf [long]; `long` is smaller still, and has a context for the requests of coding agents.
"""
import sys

import gguf
import numpy as np

IS_LONG = sys.argv[2:] == ["long"]
WIDTH, LAYERS, HEADS, FEED_FORWARD, CONTEXT = (32, 1, 1, 64, 131072) if IS_LONG else (64, 2, 4, 128, 4096)
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
PRINTABLE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?-'\"()/{}[]<>|_=+*&%$#@\n"
SYLLABLES = "ba ce di fo gu la me ni po ru sa te vi xo zu tor lin mar ket sol".split()


def vocabulary():
    """A SentencePiece vocabulary: the control tokens, every byte, letters, and words of two syllables."""
    kind = gguf.TokenType
    entries = [("<unk>", 0.0, kind.UNKNOWN), ("<s>", 0.0, kind.CONTROL), ("</s>", 0.0, kind.CONTROL)]
    entries += [(f"<0x{byte:02X}>", 0.0, kind.BYTE) for byte in range(256)]
    entries += [(letter, -1000.0, kind.NORMAL) for letter in PRINTABLE + "\u2581"]
    words = [first + second for first in SYLLABLES for second in SYLLABLES]
    entries += [("\u2581" + word, -float(rank), kind.NORMAL) for rank, word in enumerate(words)]
    return entries


def main():
    entries = vocabulary()
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    writer.add_name("tiny-random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(entries))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text.encode() for text, _, _ in entries])
    writer.add_token_scores([score for _, score, _ in entries])
    writer.add_token_types([kind for _, _, kind in entries])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(7)

    def tensor(*shape):
        return (random.standard_normal(shape) * 0.2).astype(np.float32)

    head = tensor(len(entries), WIDTH)
    # Control and byte tokens are made unlikely, so that what it says is words.
    head[:259] *= 0.02
    writer.add_tensor("token_embd.weight", tensor(len(entries), WIDTH))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output.weight", head * 4)
    square, wide = (WIDTH, WIDTH), (FEED_FORWARD, WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", tensor(*square))
        for name, shape in (("ffn_gate", wide), ("ffn_up", wide), ("ffn_down", (WIDTH, FEED_FORWARD))):
            writer.add_tensor(f"blk.{layer}.{name}.weight", tensor(*shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
