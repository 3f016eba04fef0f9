"""Ask the target questions made from the corpus, and keep its answers: one job's share of them."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write the answers of every `jobs`-th group of questions."""
    from draftledger.models.open import open_target

    target = open_target(job)
    import pyarrow.parquet as pq
    import yaml

    from draftledger.corpus.questions import Questions, slots_of
    from draftledger.provenance.tables import write_table
    from draftledger.teacher.continuations import Answering, answer_all, groups, temperatures_of

    spec, tokenizer = job.spec, target.tokenizer
    templates = yaml.safe_load(job.input(spec["templates"]).read_text(encoding="utf-8"))
    slots = slots_of(pq.read_table(job.input("corpus/documents.parquet")), lists=spec["words"])
    questions = Questions(templates, slots, spec["kinds"], spec["seed"])
    prompts = [tokenizer.chat(questions.question(number).text) for number in range(spec["questions"])]
    warm = temperatures_of(
        range(len(prompts)), seed=spec["seed"], share=spec["sampled"], temperature=spec["temperature"]
    )
    table = answer_all(
        target.model,
        prompts,
        chosen=groups([len(prompt) for prompt in prompts], batch=spec["batch"])[spec["job"] :: spec["jobs"]],
        warm=warm,
        how=Answering(spec["new_tokens"], tokenizer.eos_ids, spec["seed"]),
        partial=job.partial,
    )
    write_table(table, job.out(f"answers-{spec['job']:04d}.parquet"))


if __name__ == "__main__":
    sys.exit(run_job(compute))
