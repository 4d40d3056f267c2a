export {}; // The editor of YAML is no part of what is tested.
