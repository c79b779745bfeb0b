"""Scores the transcripts of tests/data/oracles/seed_tts_scores.json again with the public scorer, and writes its numbers there.

Usage: python scripts/write_seed_tts_oracle.py CHECKOUT_OF_SEED_TTS_EVAL, in an environment with jiwer 3.1.0, numpy, zhconv and
zhon. Only the function that scores a pair is taken from `run_wer.py`: the rest of the file loads recognisers.
"""

import ast
import json
import string
import sys
from pathlib import Path

import jiwer
import numpy as np
import zhconv
from zhon.hanzi import punctuation

ORACLE = Path(__file__).parent.parent / "tests" / "data" / "oracles" / "seed_tts_scores.json"


def public_scorer(checkout: Path, language: str):
    """`process_one` of the public scorer for one language: (hypothesis, reference) -> its tuple of measures."""
    tree = ast.parse((checkout / "run_wer.py").read_text(encoding="utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "process_one")
    names = {
        "punctuation_all": punctuation + string.punctuation,
        "compute_measures": jiwer.compute_measures,
        "lang": language,
    }
    exec(compile(ast.Module([function], []), "run_wer.py", "exec"), names)
    return names["process_one"]


if __name__ == "__main__":
    oracle = json.loads(ORACLE.read_text(encoding="utf-8"))
    for language, scored in oracle.items():
        score = public_scorer(Path(sys.argv[1]), language)
        for clip in scored["clips"]:
            simplified = zhconv.convert(clip["transcript"], "zh-cn") if language == "zh" else clip["transcript"]
            _, _, rate, *_ = score(simplified, clip["text"])
            clip |= {"simplified": simplified, "wer": rate}
        rates = [clip["wer"] for clip in scored["clips"]]
        scored["wer_percent"] = round(np.mean(rates) * 100, 3)
        scored["wer_below_half_percent"] = round(np.mean([rate for rate in rates if rate <= 0.5]) * 100, 3)
        scored["above_half"] = sum(rate > 0.5 for rate in rates)
    ORACLE.write_text(json.dumps(oracle, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
