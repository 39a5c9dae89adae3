# docker build --tag kretain:0.1.0 .
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY cli cli
COPY retention_cli retention_cli
COPY completions completions
COPY man man
RUN python -m venv /opt/kretain
RUN /opt/kretain/bin/python -m pip install --no-cache-dir '.[parquet,zookeeper,aws,metrics]'

FROM python:3.12-slim
COPY --from=build /opt/kretain /opt/kretain
# What is written at run time is the state directory alone: mount a volume there, and the root may be read-only.
ENV PATH=/opt/kretain/bin:$PATH KRETAIN_STATE_DIR=/var/lib/kretain PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 10001:10001
VOLUME /var/lib/kretain
# Of kretain watch: whether its loop moves (docs/watch.md). Any other command has nothing to ask, and is healthy.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["/opt/kretain/bin/python", "-m", "kretain.system.healthcheck"]
ENTRYPOINT ["/opt/kretain/bin/kretain"]
CMD ["--help"]
