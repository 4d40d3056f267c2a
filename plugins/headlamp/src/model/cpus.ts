// Sets of CPUs as Linux writes them: 0-3,8.

/** The CPUs of a list in order, without what is no CPU. */
export function parseCpus(text: string | undefined): number[] {
  const found = new Set<number>();
  for (const part of (text ?? '').split(',')) {
    const [, first, last] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part.trim()) ?? [];
    if (first !== undefined)
      for (let cpu = Number(first); cpu <= Number(last ?? first); cpu++) found.add(cpu);
  }
  return [...found].sort((a, b) => a - b);
}

/** The CPUs as a list, "" for none. */
export function formatCpus(cpus: Iterable<number>): string {
  const runs: [number, number][] = [];
  for (const cpu of [...new Set(cpus)].sort((a, b) => a - b)) {
    const run = runs[runs.length - 1];
    if (run && cpu === run[1] + 1) run[1] = cpu;
    else runs.push([cpu, cpu]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}
