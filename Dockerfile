# The server as an image; compose.yaml runs it, docs/serving.md says how.
FROM python:3.11-slim-bookworm AS build
RUN python -m venv /opt/locigraph
ENV PATH=/opt/locigraph/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY constraints.txt ./
# First, and from the index of the builds for CPUs: that of PyPI brings several GB of CUDA. What it needs comes from PyPI.
RUN pip install --no-deps -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
# .dockerignore names what belongs to the package.
COPY . ./
RUN pip install -c constraints.txt '.[offline,serve,postgres]'

FROM python:3.11-slim-bookworm
# The key file must belong to this user, since nobody else may be able to read it.
RUN useradd --uid 1000 --create-home locigraph && install -d -m 700 -o locigraph -g locigraph /data
COPY --from=build /opt/locigraph /opt/locigraph
# The text cache has to outlive the container, as the store does: forgetting erases from both.
ENV PATH=/opt/locigraph/bin:$PATH XDG_CACHE_HOME=/data/cache
USER locigraph
WORKDIR /data
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8765/health', timeout=9)"]
ENTRYPOINT ["locigraph"]
CMD ["serve", "--store", "/data/graph.sqlite", "--host", "0.0.0.0", "--key_file", "/run/secrets/keys"]
