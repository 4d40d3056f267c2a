// What an agent tells of its node: the JSON of raddle_operator/objects/nodereport.py. Absent numbers are null: the agent's
// level may not see them.
import { Json, number, object, objects, text } from './json';

const LEVELS = ['Kubelet', 'Cgroups', 'Processes'];

export interface Finding {
  cause: string;
  detail: string;
  fix: string;
}

export interface Pool {
  name: string;
  threads: number;
  ran: number;
  usedCpus: number;
  /** CPU -> how many of the threads that ran were there last. */
  lastCpus: Map<number, number>;
}

export interface Process {
  pid: number;
  command: string;
  threads: number;
  runtimes: string[];
  pools: Pool[];
}

export interface Container {
  namespace: string;
  pod: string;
  uid: string;
  name: string;
  policy: string;
  limitCpus: number | null;
  cpuset: string;
  usedCpus: number | null;
  throttledShare: number | null;
  waitingShare: number | null;
  plannedThreads: number | null;
  effectiveThreads: number | null;
  processes: Process[];
  findings: Finding[];
}

export interface NodeReport {
  node: string;
  level: string;
  at: string;
  windowSeconds: number;
  containers: Container[];
}

/** The report that a document holds. Throws where it is none. */
export function readReport(document: unknown): NodeReport {
  const found = object(document);
  if (!LEVELS.includes(text(found.level)) || !Array.isArray(found.containers))
    throw new Error("the agent's answer is not a node report");
  return {
    node: text(found.node),
    level: text(found.level),
    at: text(found.at),
    windowSeconds: number(found.windowS) ?? 0,
    containers: objects(found.containers).map(container),
  };
}

/** Which time a report is of, and what its agent may not see, in a line. */
export function ofWindow(report: NodeReport): string {
  const unseen =
    report.level === 'Processes'
      ? ''
      : ` Which threads ran where is not observed at agent.watch ${report.level}; set it to Processes.`;
  return `In the ${report.windowSeconds} s to ${report.at}.${unseen}`;
}

/** A container of a pod, null where the report has none of this pod (by its UID) and name. */
export function containerOf(
  report: NodeReport | null,
  uid: string,
  name: string
): Container | null {
  return report?.containers.find(one => one.uid === uid && one.name === name) ?? null;
}

function container(one: Json): Container {
  return {
    namespace: text(one.namespace),
    pod: text(one.pod),
    uid: text(one.uid),
    name: text(one.name),
    policy: text(one.policy),
    limitCpus: number(one.limitCpus),
    cpuset: text(one.cpuset),
    usedCpus: number(one.usedCpus),
    throttledShare: number(one.throttledShare),
    waitingShare: number(one.waitingShare),
    plannedThreads: number(one.plannedThreads),
    effectiveThreads: number(one.effectiveThreads),
    processes: objects(one.processes).map(process),
    findings: objects(one.findings).map(finding),
  };
}

function process(one: Json): Process {
  return {
    pid: number(one.pid) ?? 0,
    command: text(one.command),
    threads: number(one.threads) ?? 0,
    runtimes: Array.isArray(one.runtimes) ? one.runtimes.map(text) : [],
    pools: objects(one.pools).map(pool),
  };
}

function pool(one: Json): Pool {
  const last = Object.entries(object(one.lastCpus)).map(
    ([cpu, threads]) => [Number(cpu), number(threads) ?? 0] as const
  );
  return {
    name: text(one.name),
    threads: number(one.threads) ?? 0,
    ran: number(one.ran) ?? 0,
    usedCpus: number(one.usedCpus) ?? 0,
    lastCpus: new Map(last.filter(([cpu]) => Number.isInteger(cpu))),
  };
}

export function finding(one: Json): Finding {
  return {
    cause: text(one.cause),
    detail: text(one.detail),
    fix: text(one.fix),
  };
}
