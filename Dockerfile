# docker build -t dml . && docker run --gpus all -v $PWD/data:/work/data -v $PWD/outputs:/work/outputs dml loss=mfcwms
# .github/workflows/docker.yml builds it; it last passed: not run yet.
# --shm-size=8g for loading processes. Another command: --entrypoint dml … runs
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY dml dml
COPY configs configs
COPY hydra_plugins hydra_plugins
RUN pip install --no-cache-dir .
WORKDIR /work
ENTRYPOINT ["dml", "train"]
