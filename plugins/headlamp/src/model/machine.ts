// A node's cores as boxes (NUMA nodes, and in these the caches that cores share), and whose threads ran on its CPUs last.
import { parseCpus } from './cpus';
import { number, object, objects, text } from './json';
import { NodeReport } from './report';

/** Cores (each the CPUs of one) that share a cache; `id` is null where the node does not say which. */
export interface Cache {
  id: number | null;
  cores: number[][];
}

export interface NumaNode {
  id: number | null;
  memoryMib: number | null;
  caches: Cache[];
}

/** The boxes of a NodeCPUTopology's spec. Every CPU that is online is in one of them, once. */
export function numaNodes(spec: unknown): NumaNode[] {
  const facts = object(spec);
  const online = new Set(parseCpus(text(object(facts.cpus).online)));
  const left = new Set(online);
  const cores: number[][] = [];
  for (const list of Array.isArray(facts.cores) ? facts.cores : []) {
    const core = parseCpus(text(list)).filter(cpu => left.delete(cpu));
    if (core.length) cores.push(core);
  }
  cores.push(...[...left].map(cpu => [cpu]));
  cores.sort((a, b) => a[0] - b[0]);

  const nodes = groups(cores, objects(facts.numaNodes), 'numaNodeID');
  return nodes.map(([node, those]) => ({
    id: node ? number(node.numaNodeID) : null,
    memoryMib: node ? number(node.memoryMiB) : null,
    caches: groups(those, objects(facts.l3Domains), 'cacheL3ID').map(([cache, shared]) => ({
      id: cache ? number(cache.cacheL3ID) : null,
      cores: shared,
    })),
  }));
}

type Domain = Record<string, unknown>;

/** The cores by the domain that has their first CPU, in the domains' order, last those that are in none. */
function groups(cores: number[][], domains: Domain[], key: string): [Domain | null, number[][]][] {
  const owner = new Map<number, Domain>();
  for (const domain of domains)
    if (number(domain[key]) !== null)
      for (const cpu of parseCpus(text(domain.cpus))) owner.set(cpu, domain);
  const places: (Domain | null)[] = [...domains, null];
  return places
    .map((domain): [Domain | null, number[][]] => [
      domain,
      cores.filter(core => (owner.get(core[0]) ?? null) === domain),
    ])
    .filter(([, those]) => those.length > 0);
}

/** A container whose threads ran on a CPU last, and how much of a CPU those used. */
export interface Occupant {
  container: string;
  usedCpus: number;
}

/** With the namespace: pods of a StatefulSet are called alike in each. */
export function nameOf(container: { namespace: string; pod: string; name: string }): string {
  return `${container.namespace}/${container.pod}/${container.name}`;
}

/** CPU -> whose threads ran there last, the busiest first. A pool's CPU time is shared out over the threads that ran. */
export function occupants(report: NodeReport): Map<number, Occupant[]> {
  const used = new Map<number, Map<string, number>>();
  for (const container of report.containers)
    for (const process of container.processes)
      for (const pool of process.pools) {
        const ran = [...pool.lastCpus.values()].reduce((sum, threads) => sum + threads, 0);
        for (const [cpu, threads] of pool.lastCpus) {
          const those = used.get(cpu) ?? new Map<string, number>();
          const name = nameOf(container);
          those.set(name, (those.get(name) ?? 0) + (ran ? (pool.usedCpus * threads) / ran : 0));
          used.set(cpu, those);
        }
      }
  const sorted = (those: Map<string, number>) =>
    [...those]
      .map(([container, usedCpus]) => ({ container, usedCpus }))
      .sort((a, b) => b.usedCpus - a.usedCpus);
  return new Map([...used].map(([cpu, those]) => [cpu, sorted(those)]));
}
