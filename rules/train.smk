rule adapter:
    """One drafter's trained weights: one job, and one draw, a seed and launch."""
    input:
        script=script("adapter"),
        payloads=payloads(*BASE, *WINDOWS, *PLAN.shards("train"), *PLAN.shards("validation")),
        manifests=manifests(*BASE, *WINDOWS, *PLAN.shards("train"), *PLAN.shards("validation")),
    output:
        made(
            f"{R}/adapters/{{drafter}}/seed{{seed}}-launch{{launch}}/adapter.safetensors",
            f"{R}/adapters/{{drafter}}/seed{{seed}}-launch{{launch}}/history.parquet",
        ),
    log:
        f"logs/{R}/adapters/{{drafter}}/seed{{seed}}-launch{{launch}}.log",
    conda:
        ENV
    threads: THREADS
    params:
        spec=lambda wc: spec("adapter", drafter=wc.drafter, seed=wc.seed, launch=wc.launch),
        code=adapter_code,
    shell:
        CALL


rule published:
    """A published drafter's weights, checked against their digest and layout, their tensors as they are."""
    input:
        script=script("published"),
        sources=adapter_sources,
    output:
        made(f"{R}/adapters/{{drafter}}/published/adapter.safetensors"),
    log:
        f"logs/{R}/adapters/{{drafter}}/published.log",
    conda:
        ENV
    params:
        spec=lambda wc: spec("published", drafter=wc.drafter),
        code=PLAN.code("published"),
        sources=lambda wc: PLAN.adapter_listing(wc.drafter),
    shell:
        CALL
