"""Builds many RBD images with Ray: each task creates an image, builds it with `drystone build` and checks it.

    python build_with_ray.py TREE IMAGE_PREFIX COUNT SIZE

makes IMAGE_PREFIX0, IMAGE_PREFIX1, ... such as pool/tenant0. CEPH_CONF names the cluster. An image whose task failed
is removed, and the task tried again by Ray, on another machine if there is one.
"""

import subprocess
import sys
import time

import ray


@ray.remote(num_cpus=1, max_retries=3, retry_exceptions=True)
def build(tree, image, size):
    subprocess.run(["rbd", "create", image, "--size", size], check=True)
    try:
        subprocess.run(["drystone", "build", "-q", f"rbd:{image}", "--from", tree], check=True)
        subprocess.run(["drystone", "check", "-q", f"rbd:{image}"], check=True)
    except subprocess.CalledProcessError:
        subprocess.run(["rbd", "rm", "--no-progress", image], check=False)
        raise
    return image


def main(tree, prefix, count, size):
    ray.init()
    start = time.monotonic()
    images = ray.get([build.remote(tree, f"{prefix}{number}", size) for number in range(int(count))])
    print(f"{len(images)} images in {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
