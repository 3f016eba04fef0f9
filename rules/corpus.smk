rule environment:
    """The environment class: what decides the bits of a computation on this machine."""
    input:
        script=script("environment"),
    output:
        made(f"{R}/environment.json"),
    log:
        f"logs/{R}/environment.log",
    conda:
        ENV
    params:
        spec=spec("environment"),
        code=PLAN.code("environment"),
    shell:
        CALL


rule corpus:
    """The documents, one row each, with source, revision and licence."""
    input:
        script=script("corpus"),
        sources=payloads(*PLAN.sources("corpus")),
    output:
        made(f"{R}/corpus/documents.parquet"),
    log:
        f"logs/{R}/corpus.log",
    conda:
        ENV
    params:
        spec=spec("corpus"),
        code=PLAN.code("corpus"),
        sources=PLAN.listing("corpus"),
    shell:
        CALL


rule continuations:
    """The target's own answers to questions made from the corpus: one job's share."""
    input:
        script=script("continuations"),
        payloads=payloads(*BASE, f"{R}/corpus/documents.parquet"),
        manifests=manifests(*BASE, f"{R}/corpus/documents.parquet"),
        templates=ancient(TEMPLATES),
    output:
        made(f"{R}/continuations/answers-{{job}}.parquet"),
    log:
        f"logs/{R}/continuations/{{job}}.log",
    conda:
        ENV
    threads: THREADS
    params:
        spec=lambda wc: spec("continuations", job=wc.job),
        code=PLAN.code("continuations"),
        templates=bytes_of(TEMPLATES),
    shell:
        CALL


rule windows:
    """Token windows split by document or question, and how much of each prompt they contain."""
    input:
        script=script("windows"),
        payloads=payloads(
            *SPOKEN,
            f"{R}/model/tokenizer.json",
            f"{R}/model/tokenizer_config.json",
        ),
        manifests=manifests(
            *SPOKEN,
            f"{R}/model/tokenizer.json",
            f"{R}/model/tokenizer_config.json",
        ),
        prompts=ancient(PROMPTS),
    output:
        made(
            f"{R}/windows/train.parquet",
            f"{R}/windows/validation.parquet",
            f"{R}/windows/overlap.parquet",
        ),
    log:
        f"logs/{R}/windows.log",
    conda:
        ENV
    params:
        spec=spec("windows"),
        code=PLAN.code("windows"),
        prompts=bytes_of(PROMPTS),
    shell:
        CALL
