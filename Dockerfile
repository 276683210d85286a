# docker build -t coterie . && docker run --gpus all -v $PWD/runs:/runs coterie train plan_path --out /runs/first
# For GPUs; on Kubernetes it is the image of every machine of a cluster (docs/cluster.md).
FROM python:3.12-slim

RUN apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends bubblewrap gcc git libc6-dev \
 && rm -rf /var/lib/apt/lists/*
COPY . /opt/coterie
RUN pip install --no-cache-dir '/opt/coterie[data,lora,maths,ray,remote,vllm]' 'ray[default]==2.60.*'
WORKDIR /runs
ENTRYPOINT ["coterie"]
