"""vLLM in an interpreter of its own, told by lines of JSON what to sample; `rollout.py` starts it.

One engine serves all settings, since it takes minutes to start. Prefix caching is on, so that a prompt is read once for its group, and
is emptied before each run: between the steps of a training the weights change, and nothing that was cached would hold.
"""

from __future__ import annotations

import json
import sys
import time

from common import report


def main() -> None:
    from vllm import LLM, SamplingParams

    settings = json.loads(sys.stdin.readline())
    start = time.perf_counter()
    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        max_model_len=settings["max_length"],
        max_num_seqs=settings["max_rows"],
        enable_prefix_caching=True,
        **({"gpu_memory_utilization": 0.5} if settings["device"].startswith("cuda") else {}),
    )
    report({"start_seconds": time.perf_counter() - start})
    for line in sys.stdin:
        job = json.loads(line)
        # Without log-probabilities, which ours gives as well: what vLLM need not do is not asked of it.
        sampling = SamplingParams(
            n=job["group"], temperature=1.0, top_p=1.0, top_k=0, max_tokens=job["new"], ignore_eos=True, detokenize=False
        )
        llm.reset_prefix_cache()
        start = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in job["prompts"]], sampling, use_tqdm=False)
        taken = time.perf_counter() - start
        report({"seconds": taken, "tokens": sum(len(one.token_ids) for output in outputs for one in output.outputs)})


if __name__ == "__main__":
    main()
