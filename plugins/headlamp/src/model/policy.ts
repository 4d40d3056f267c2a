// What a policy's status says, and by which question its pods are found without listing all pods.
import { Json, number, object, objects, text } from './json';
import { GOVERNED_BY, INJECTED_LABEL } from './plan';
import { Finding, finding } from './report';
import { Pod } from './rows';

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
}

// Conditions that are good when they are not so.
const UNWANTED = ['Degraded', 'Drifted'];

export function isGood({ type, status }: Condition): boolean {
  return status === (UNWANTED.includes(type) ? 'False' : 'True');
}

/** A finding of one container. */
export interface Worst extends Finding {
  namespace: string;
  pod: string;
  container: string;
}

/** What agents told of the containers: null where no agent has. */
export interface Running {
  containers: number;
  drifted: number;
  worst: Worst[];
}

export interface Policy {
  kind: string;
  namespace: string;
  name: string;
  objective: string;
  mode: string;
  matched: number | null;
  injected: number | null;
  stale: number | null;
  threads: string;
  running: Running | null;
  conditions: Condition[];
}

export function readPolicy(one: unknown): Policy {
  const { kind, metadata, spec, status } = object(one);
  const [named, asked, found] = [object(metadata), object(spec), object(status)];
  return {
    kind: text(kind),
    namespace: text(named.namespace),
    name: text(named.name),
    objective: text(asked.objective),
    mode: text(asked.mode),
    matched: number(found.matchedPods),
    injected: number(found.injectedPods),
    stale: number(found.stalePods),
    threads: text(found.threads),
    running: readRunning(found.running),
    conditions: objects(found.conditions).map(condition),
  };
}

export function readRunning(running: unknown): Running | null {
  if (running === undefined) return null;
  const found = object(running);
  const sum = (key: string) =>
    number(found[key]) ??
    objects(found.policies).reduce((total, one) => total + (number(one[key]) ?? 0), 0);
  const worst = objects(found.worst).map(one => ({
    ...finding(one),
    namespace: text(one.namespace),
    pod: text(one.pod),
    container: text(one.container),
  }));
  return { containers: sum('containers'), drifted: sum('drifted'), worst };
}

export function condition(one: Json): Condition {
  return {
    type: text(one.type),
    status: text(one.status),
    reason: text(one.reason),
    message: text(one.message),
  };
}

/** The label selector of a LabelSelector, "" for one that selects everything. */
export function labelSelector(selector: unknown): string {
  const { matchLabels, matchExpressions } = object(selector);
  const equal = Object.entries(object(matchLabels)).map(([key, value]) => `${key}=${value}`);
  const more = objects(matchExpressions).map(({ key, operator, values }) => {
    const listed = Array.isArray(values) ? values.join(',') : '';
    if (operator === 'Exists') return `${key}`;
    if (operator === 'DoesNotExist') return `!${key}`;
    return `${key} ${operator === 'NotIn' ? 'notin' : 'in'} (${listed})`;
  });
  return [...equal, ...more].join(',');
}

/** Which pods to ask for: the policy's own selector among those that Raddle has marked. */
export function governedSelector(policy: unknown): string {
  const own = labelSelector(object(object(policy).spec).podSelector);
  return [`${INJECTED_LABEL}=true`, own].filter(Boolean).join(',');
}

/** Whether the pod says that this policy governs it. */
export function governs(policy: Policy, pod: Pod): boolean {
  return (
    pod.metadata.annotations?.[GOVERNED_BY] === `${policy.kind}/${policy.name}` &&
    (!policy.namespace || pod.metadata.namespace === policy.namespace)
  );
}
