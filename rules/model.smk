rule model:
    """The frozen target as an mlx-lm folder: pinned bytes, or trained here for the tiny one."""
    input:
        script=script("model"),
        payloads=payloads(*TARGET_SOURCES),
        manifests=manifests(*TARGET_SOURCES),
        sources=payloads(*PLAN.sources("target")),
    output:
        made(*PLAN.model()),
    log:
        f"logs/{R}/model.log",
    conda:
        ENV
    threads: THREADS
    params:
        spec=spec("model"),
        code=PLAN.code("model"),
        sources=PLAN.listing("target"),
    shell:
        CALL
