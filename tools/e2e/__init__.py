"""Real nodes end to end: a kubelet, containerd, Raddle installed by Helm, and pods that run."""
