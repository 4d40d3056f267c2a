// One line for each container: planned against running, and why.
import { Planned, planned, threads } from './plan';
import { Container, containerOf, Finding, NodeReport } from './report';

/** What is read of a pod. */
export interface Pod {
  metadata: {
    name: string;
    namespace?: string;
    uid?: string;
    annotations?: Record<string, string>;
  };
  spec?: { nodeName?: string };
}

/** `running` is null where no agent has said anything of the container. */
export interface Row {
  pod: string;
  namespace: string;
  node: string;
  container: string;
  plan: Planned | null;
  planned: number | null;
  running: Container | null;
}

export type Reports = Map<string, NodeReport>;

/** One row for each container with a plan. */
export function rowsOf(pods: Pod[], reports: Reports): Row[] {
  return pods.flatMap(pod => {
    const node = pod.spec?.nodeName ?? '';
    const report = reports.get(node) ?? null;
    return planned(pod.metadata.annotations).map(plan => ({
      pod: pod.metadata.name,
      namespace: pod.metadata.namespace ?? '',
      node,
      container: plan.container,
      plan,
      planned: threads(plan),
      running: containerOf(report, pod.metadata.uid ?? '', plan.container),
    }));
  });
}

/** One row for each container that a node's agent has told of, those that run otherwise than planned first. */
export function rowsOfNode(report: NodeReport): Row[] {
  const rows = report.containers.map(running => ({
    pod: running.pod,
    namespace: running.namespace,
    node: report.node,
    container: running.name,
    plan: null,
    planned: running.plannedThreads,
    running,
  }));
  return rows.sort((a, b) => Number(drifted(b)) - Number(drifted(a)));
}

/** "2", "2 → 16" where others are in effect, "–" where neither is known. */
export function threadsText(row: Row): string {
  const effective = row.running?.effectiveThreads ?? null;
  if (effective === null || effective === row.planned)
    return row.planned === null ? '–' : `${row.planned}`;
  return `${row.planned ?? '–'} → ${effective}`;
}

export function drifted(row: Row): boolean {
  return (row.running?.findings.length ?? 0) > 0;
}

/** What is wrong and what to do; of what is as planned the reason for the number. */
export function why(row: Row): { text: string; findings: Finding[] } {
  if (row.plan?.problem) return { text: row.plan.problem, findings: [] };
  return {
    text: row.plan?.because.intraOp ?? '',
    findings: row.running?.findings ?? [],
  };
}

export function percent(share: number | null): string {
  return share === null ? '–' : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function cpus(count: number | null): string {
  return count === null ? '–' : `${Math.round(count * 100) / 100}`;
}
