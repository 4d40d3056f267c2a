// What is asked of the API server, always a bounded part: pods of one node, one label, one page.

export const MOST_PODS = 100;
export const MOST_NODES = 500;
const AGENT_PORT = 8082;
const API = '/apis/raddle.dev/v1alpha1';

export interface Question {
  path: string;
  query: Record<string, string>;
}

function podsIn(namespace: string): string {
  return namespace ? `/api/v1/namespaces/${namespace}/pods` : '/api/v1/pods';
}

export function agentOf(node: string, namespace: string): Question {
  return {
    path: podsIn(namespace),
    query: {
      labelSelector: 'app.kubernetes.io/name=raddle,app.kubernetes.io/component=agent',
      fieldSelector: `spec.nodeName=${node},status.phase=Running`,
      limit: '1',
    },
  };
}

export function reportFrom(agent: string, namespace: string): Question {
  return {
    path: `${podsIn(namespace)}/${agent}:${AGENT_PORT}/proxy/v1/report`,
    query: {},
  };
}

export function podsWith(labelSelector: string, namespace: string): Question {
  return {
    path: podsIn(namespace),
    query: { labelSelector, limit: `${MOST_PODS}` },
  };
}

export function topologies(): Question {
  return {
    path: `${API}/nodecputopologies`,
    query: { limit: `${MOST_NODES}` },
  };
}

export function topology(node: string): Question {
  return { path: `${API}/nodecputopologies/${node}`, query: {} };
}

export function policies(plural: string): Question {
  return { path: `${API}/${plural}`, query: { limit: `${MOST_NODES}` } };
}

export function policy(plural: string, namespace: string, name: string): Question {
  return {
    path: namespace
      ? `${API}/namespaces/${namespace}/${plural}/${name}`
      : `${API}/${plural}/${name}`,
    query: {},
  };
}

/** What the API server's refusal was: its status, and its words or the agent's. */
export interface Refusal {
  status?: number;
  message?: string;
}

const [FORBIDDEN, NOT_FOUND] = [403, 404];
// In these words the API server says that it did not reach the port; others are the agent's.
const UNREACHED = 'trying to reach service';

/** Why it is not known where a node's agent is, in a line. */
export function whyNoAgent(node: string, namespace: string, refusal?: Refusal): string {
  if (!refusal)
    return `No agent of Raddle runs on ${node} (searched in ${namespace}), so only the plan is known.`;
  if (refusal.status === FORBIDDEN)
    return `You may not list pods in ${namespace}, so Raddle's agent on ${node} can't be queried.`;
  return `The API server does not say where Raddle's agent on ${node} is: ${refusal.message}`;
}

/** Why a node's agent has not told anything, in a line. */
export function whyNoReport(
  node: string,
  namespace: string,
  { status, message = '' }: Refusal
): string {
  if (status === FORBIDDEN)
    return `You may not get pods/proxy in ${namespace}, so Raddle's agent on ${node} can't be queried.`;
  if (status === NOT_FOUND || message.includes(UNREACHED))
    return `Raddle's agent on ${node} does not answer: set agent.watch to a value other than None.`;
  return `Raddle's agent on ${node} says: ${message.replace(/^[\w ]* - /, '').trim()}`;
}
