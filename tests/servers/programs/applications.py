"""Work of the application that the first argument names; the second is a folder of small models. As in libraries.py."""

import json
import pathlib
import re
import shutil
import sys

import units
from units import done

NAMES = ("endoftext", "startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech")


def faster_whisper(models):
    import numpy as np
    from faster_whisper import WhisperModel

    write_whisper("whisper")
    model = WhisperModel("whisper", device="cpu")
    sound = np.random.default_rng(7).standard_normal(16000).astype("f")
    how = {"language": "en", "beam_size": 1, "temperature": 0.0, "without_timestamps": True, "max_new_tokens": 8}
    how |= {"suppress_tokens": [], "no_speech_threshold": None, "log_prob_threshold": None}

    def work():
        segments, _ = model.transcribe(sound, compression_ratio_threshold=None, **how)
        return done(list(segments))

    return work


def write_whisper(folder):
    """A folder with an English Whisper of one layer, made of random weights, for CTranslate2."""
    import numpy as np
    from ctranslate2.specs import whisper_spec
    from tokenizers import Tokenizer, models, pre_tokenizers

    width, random = 256, np.random.default_rng(7)
    tokens = [*(f"<|{name}|>" for name in (*NAMES, "notimestamps")), *(f"<|{n * 0.02:.2f}|>" for n in range(1501))]
    tokens += ["a", "b", "<unk>"]

    def weights(*shape):
        return (random.standard_normal(shape) / width).astype("f")

    def linear(one, rows, columns):
        one.weight, one.bias = weights(rows, columns), weights(rows)

    def norm(one):
        one.gamma, one.beta = np.ones(width, "f"), np.zeros(width, "f")

    def attention(one, *rows):
        norm(one.layer_norm)
        for part, count in zip(one.linear, rows, strict=True):
            linear(part, count * width, width)

    spec = whisper_spec.WhisperSpec(1, 4, 1, 4)
    for conv, channels in ((spec.encoder.conv1, 80), (spec.encoder.conv2, width)):
        conv.weight, conv.bias = weights(width, channels, 3), weights(width)
    spec.decoder.embeddings.weight = weights(len(tokens), width)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    for part, positions in ((spec.encoder, 1500), (spec.decoder, 448)):
        part.position_encodings.encodings = weights(positions, width)
        norm(part.layer_norm)
        (layer,) = part.layer
        attention(layer.self_attention, 3, 1)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 4 * width, width)
        linear(layer.ffn.linear_1, width, 4 * width)
    attention(spec.decoder.layer[0].attention, 1, 2, 1)
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    pathlib.Path(folder).mkdir()
    spec.save(folder)
    words = Tokenizer(models.WordLevel({token: n for n, token in enumerate(tokens)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(f"{folder}/tokenizer.json")


def fastembed(models):
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    from tokenizers import Tokenizer
    from tokenizers import models as kinds
    from tokenizers.pre_tokenizers import Whitespace

    folder = pathlib.Path("words")
    folder.mkdir()
    shutil.copy(f"{models}/words.onnx", folder)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    words = Tokenizer(kinds.WordLevel({"[PAD]": 0, "[UNK]": 1, "hello": 2, "world": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128, **special}))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))

    source = ModelSource(url="https://models.example/words")
    known = {"sources": source, "dim": 256, "model_file": "words.onnx"}
    TextEmbedding.add_custom_model("words", PoolingType.MEAN, normalization=True, **known)
    model = TextEmbedding("words", specific_model_path=str(folder))
    return lambda: done(list(model.embed(["hello world " * 40] * 64)))


def magika(models):
    from magika import Magika

    model = Magika()
    text = b"import os\n\n\ndef main():\n    print(os.getcwd())\n" * 40
    return lambda: done(model.identify_bytes(text))


if __name__ == "__main__":
    units.serve(globals()[re.sub("[-.]", "_", sys.argv[1])](sys.argv[2]))
