"""Settings of the work in the background, each with its range: a worker's batches, and when runs start.

Their defaults are limits of ``spm.limits`` and suit nearly all sites; the bounds of the ranges keep what the limits are
for: memory of a worker, freshness of answers.
"""

from environs import validate

from spm import limits
from spm.settings.environment import env, hours_of_day

SPM_BATCH_MESSAGES: int = env.int("SPM_BATCH_MESSAGES", limits.BATCH_MESSAGES, validate=validate.Range(1, 16_384))
SPM_BATCH_AGE_MS: int = env.int("SPM_BATCH_AGE_MS", limits.BATCH_AGE_MS, validate=validate.Range(50, 5_000))
SPM_PREFETCH: int = env.int("SPM_PREFETCH", limits.CONSUME_UNACKED_MAX, validate=validate.Range(64, 8_192))
SPM_RUN_ROWS: int = env.int("SPM_RUN_ROWS", limits.ROLL_PENDING_ROWS, validate=validate.Range(10, 5_000))
SPM_RUN_SAMPLES: int = env.int(
    "SPM_RUN_SAMPLES", limits.ROLL_PENDING_SAMPLES, validate=validate.Range(10_000, limits.ROLL_LOCAL_SAMPLES_MAX)
)
SPM_RUN_AGE_S: int = env.int(
    "SPM_RUN_AGE_S", limits.ROLL_PENDING_AGE_MS // 1_000, validate=validate.Range(60, 6 * 3_600)
)
SPM_MERGE_HOURS: frozenset[int] = hours_of_day("SPM_MERGE_HOURS", env.str("SPM_MERGE_HOURS", ""))
