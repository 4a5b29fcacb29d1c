#!/bin/sh
# One sweep whose load comes from four nodes:   sbatch deploy/slurm.sh
# Ray runs on all of them while the sweep runs on the first. See docs/many-clients.md.
#SBATCH --job-name=frontier
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
set -eu
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):6379
# Without a token every user who reaches that port could run commands in this job.
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED
srun ray symmetric-run --address "$head" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus 0 -- \
    frontier sweep sweep.yaml --set "workers={ray: $head}" -o runs/night
