rule decode:
    """Every round of every prompt of one arm, and the exactness check of every emitted token."""
    input:
        script=script("decode"),
        payloads=payloads(*BASE),
        manifests=manifests(*BASE),
        sources=decode_payloads,
        source_manifests=decode_manifests,
        prompts=ancient(PROMPTS),
    output:
        made(
            f"{R}/decode/{{arm}}/{{draw}}/rounds.parquet",
            f"{R}/decode/{{arm}}/{{draw}}/positions.parquet",
        ),
    log:
        f"logs/{R}/decode/{{arm}}/{{draw}}.log",
    conda:
        ENV
    threads: THREADS
    params:
        spec=lambda wc: spec("decode", arm=wc.arm, draw=wc.draw),
        code=decode_code,
        prompts=bytes_of(PROMPTS),
    shell:
        CALL


rule timing:
    """One session: all timed arms interleaved in one process, their tokens held to decode's."""
    input:
        script=script("timing"),
        payloads=payloads(*BASE),
        manifests=manifests(*BASE),
        sources=timing_payloads,
        source_manifests=timing_manifests,
        prompts=ancient(PROMPTS),
    output:
        made(
            f"{R}/timing/{{draw}}/session{{session}}.parquet",
            f"{R}/timing/{{draw}}/session{{session}}.cost.parquet",
        ),
    log:
        f"logs/{R}/timing/{{draw}}/session{{session}}.log",
    conda:
        ENV
    # All cores, so that no other job of this run disturbs the clock.
    threads: workflow.cores
    params:
        spec=lambda wc: spec("timing", draw=wc.draw, session=wc.session),
        code=PLAN.code("timing", kinds=PLAN.timed_kinds()),
        prompts=bytes_of(PROMPTS),
    shell:
        CALL
