"""What the flags of results mean, in a few words: docs/measuring.md has more."""

from __future__ import annotations

from collections.abc import Sequence

from webnorm.gpu.timing import DRIFTING, FEW_SAMPLES, NOISY_SPREAD, THROTTLED_RATIO
from webnorm.lab.results.result import Result
from webnorm.lab.verify.timed_work import SUSPICIOUS_PERCENT

FLAGS = {
    "few samples": f"fewer than {FEW_SAMPLES}, which tell neither ranks nor whether the device is noisy",
    "noisy": f"p20 to p80, of samples or of runs, spans more than {100 * NOISY_SPREAD:.0f} % of the median",
    "throttled": f"the last third took over {100 * (THROTTLED_RATIO - 1):.0f} % more time than the first",
    "drifting": f"by the end the copy's own time moved by over {100 * DRIFTING:.0f} %, and over its noise",
    "unsettled": "the device had not come to rest when it was timed",
    "suspicious": f"more than {SUSPICIOUS_PERCENT:.0f} % of the copy",
    "interrupted": "Ctrl-C ended the timing early, or came before it was proved that the work was done",
}


def flag_meanings(results: Sequence[Result]) -> list[str]:
    """What those flags mean that results have, a line each."""
    raised = {flag for result in results for flag in result.flags}
    return [f"{flag}: {meaning}" for flag, meaning in FLAGS.items() if flag in raised]
