// What a pod's own annotations say of its containers, read as `kubectl raddle explain` reads them.
import { Json, number, object, text } from './json';

export const GOVERNED_BY = 'raddle.dev/governed-by';
export const INJECTED_LABEL = 'raddle.dev/injected';
const PLAN_PREFIX = 'plan.raddle.dev/';
const VERSION = 1;
const KEPT = 'set in the pod spec';

/** One container's plan. `node` is null for safe values; `problem` is why the plan can't be read, "" where it can. */
export interface Planned {
  container: string;
  governedBy: string;
  node: string | null;
  limitCpus: number | null;
  values: Json;
  because: Record<string, string>;
  problem: string;
}

export function planned(annotations: Record<string, string> | undefined): Planned[] {
  return Object.entries(annotations ?? {})
    .filter(([key]) => key.startsWith(PLAN_PREFIX))
    .map(([key, plan]) => read(key.slice(PLAN_PREFIX.length), plan));
}

/** The threads that ONNX Runtime's or torch's pool was planned with, null where the plan leaves it alone. */
export function threads(plan: Planned): number | null {
  return number(plan.values.intraOp);
}

function read(container: string, plan: string): Planned {
  const nothing = {
    governedBy: '',
    node: null,
    limitCpus: null,
    values: {},
    because: {},
  };
  let document: Json;
  try {
    document = object(JSON.parse(plan));
  } catch {
    return { container, ...nothing, problem: 'its plan is not JSON' };
  }
  const parts = [document.set, document.because, document.budget];
  if (
    document.v !== VERSION ||
    parts.some(part => part !== undefined && (typeof part !== 'object' || Array.isArray(part)))
  )
    return {
      container,
      ...nothing,
      problem: `its plan is not one of version ${VERSION}`,
    };
  const reasons = Object.entries(object(document.because)).map(([name, why]) => [
    name,
    String(why),
  ]);
  return {
    container,
    governedBy: text(document.by),
    node: typeof document.node === 'string' ? document.node : null,
    limitCpus: number(object(document.budget).quota_cpus),
    values: object(document.set),
    because: Object.fromEntries(reasons.filter(([, why]) => why !== KEPT)),
    problem: '',
  };
}
