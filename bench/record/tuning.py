"""Tune a problem of a record: by a search, or from a tuning file."""

from __future__ import annotations

from bench.record.variants import TunedVariants, all_kernels
from webnorm.choice.defaults import choose
from webnorm.choice.tuning import Tuning
from webnorm.gpu import timing
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.process.worker import Worker
from webnorm.lab.run import bench, jobs, search
from webnorm.lab.run.tune import candidates
from webnorm.op.op import Task


def searchable(task: Task, traits: Traits) -> list[Variant]:
    """Return the variants for a search: all that may win, the most promising first."""
    kernels = all_kernels()
    return candidates(kernels, task, traits, choose(kernels, task, traits).variant)


def recorded(task: Task, traits: Traits, tuning: Tuning) -> TunedVariants | None:
    """Return a tuning's choice for a task, or None."""
    chosen = choose(all_kernels(), task, traits, tuning)
    return (
        TunedVariants((chosen.variant,), tuning.matching(task)[0].tried)
        if chosen.source == "tuning"
        else None
    )


def searched(task: Task, traits: Traits, worker: Worker, seconds: float) -> TunedVariants:
    """Search for `seconds` and return the finalists; WorkerDied if a variant killed the worker."""
    variants = searchable(task, traits)
    specs = tuple(jobs.VariantSpec.of(variant) for variant in variants)
    rule = timing.StoppingRule(budget_s=seconds)
    job = jobs.TimingJob(task, specs, (), bench.sets_for(task, traits), rule, repeated=True)
    finalists = search.Finalists((), 0)
    for event in worker.stream(search.search_variants, job):
        if isinstance(event, search.Finalists):
            finalists = event
    return TunedVariants(tuple(variants[index] for index in finalists.indices), finalists.tried)
