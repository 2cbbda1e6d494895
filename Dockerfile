# docker compose up --build            NVIDIA cards
# docker compose up --build gui-cpu    no card
FROM python:3.12-slim-bookworm

# gcc is what torch.compile and Triton build their kernels with; tini hands on the stop signal and collects ended runs
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev tini \
    && rm -rf /var/lib/apt/lists/*

# cuda, cpu, rocm, or a name that uv knows, such as cu126 for an older driver
ARG TORCH_BACKEND=cuda
ENV KOHYA_VENV=/opt/venv \
    KOHYA_TORCH_BACKEND=${TORCH_BACKEND} \
    PIP_NO_CACHE_DIR=1 \
    UV_NO_CACHE=1 \
    UV_COMPILE_BYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /app
# The packages have a layer of their own, which a change of the program does not make anew
COPY requirements.txt pyproject.toml ./
COPY kohya_gui/install.py kohya_gui/start.sh kohya_gui/
RUN sh kohya_gui/start.sh setup

COPY . .
# Any user may run the image (compose passes the host's), so what the program writes to is open to all
RUN useradd --uid 1000 --create-home --home-dir /home/trainer trainer \
    && mkdir -p runs outputs logs reg data models dataset \
    && chmod 1777 /app runs outputs logs reg data models dataset /home/trainer
ENV HOME=/home/trainer
USER trainer

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["/opt/venv/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=8)"]
ENTRYPOINT ["tini", "--", "./gui.sh", "--headless", "--listen", "0.0.0.0", "--server_port", "7860"]
