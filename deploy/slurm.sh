#!/bin/sh
# Four shards of one grid, one on each of four nodes:   sbatch deploy/slurm.sh
#SBATCH --job-name=frontier-night
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
set -eu
start=$(($(date +%s) + 60))
srun sh -c 'frontier shard deploy/grid.yaml --index "$SLURM_PROCID" --of "$SLURM_NTASKS" --start-at '"$start"' -o shared/night'
frontier merge shared/night -o runs/night
