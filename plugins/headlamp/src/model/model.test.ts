import { describe, expect, it } from 'vitest';
// Made by tests/headlamp/test_fixture.py of Raddle's own types.
import fixture from '../../../../tests/headlamp/golden/watched.json';
import { agentOf, podsWith, policies, topologies, whyNoAgent, whyNoReport } from './asking';
import { formatCpus, parseCpus } from './cpus';
import { numaNodes, occupants } from './machine';
import { Planned, planned } from './plan';
import {
  governedSelector,
  governs,
  isGood,
  labelSelector,
  readPolicy,
  readRunning,
} from './policy';
import { ofWindow, readReport } from './report';
import { drifted, rowsOf, rowsOfNode, threadsText, why } from './rows';

const REPORT = readReport(fixture.report);
const PODS = fixture.pods.map(pod => ({
  ...pod,
  metadata: { ...pod.metadata, uid: pod.metadata.name },
}));

describe('plans', () => {
  const asPython = (plan: Planned) => ({
    container: plan.container,
    governed_by: plan.governedBy,
    node: plan.node,
    planned_cpus: plan.limitCpus,
    values: plan.values,
    because: plan.because,
    readable: !plan.problem,
  });

  it.each(fixture.pods.map(pod => [pod.metadata.name, pod] as const))(
    'of %s are read as explain reads them',
    (name, pod) => {
      const explained: Record<string, unknown> = fixture.explained;
      expect(planned(pod.metadata.annotations as Record<string, string>).map(asPython)).toEqual(
        explained[name]
      );
    }
  );

  it('that nobody can read are told, as explain tells them', () => {
    const { annotations, explained } = fixture.hostile;
    expect(planned(annotations).map(asPython)).toEqual(explained);
    expect(planned(undefined)).toEqual([]);
  });
});

describe('reports', () => {
  it('have the numbers that the agent wrote, and null for what its level does not see', () => {
    const [obeys, sets, unseen] = REPORT.containers;
    expect([obeys.usedCpus, obeys.throttledShare, obeys.effectiveThreads]).toEqual([
      1.61, 0.002, 2,
    ]);
    expect(sets.findings.map(one => one.cause)).toEqual(['CodeSetsIt']);
    expect(unseen.waitingShare).toBeNull();
    expect(ofWindow(REPORT)).toBe('In the 15 s to 2026-11-20T10:00:00Z.');
    expect(ofWindow({ ...REPORT, level: 'Kubelet' })).toContain('set it to Processes');
  });

  it.each([
    null,
    'text',
    [],
    {},
    { level: 'All', containers: [] },
    { level: 'Kubelet', containers: {} },
  ])('are refused where they are none: %j', document => {
    expect(() => readReport(document)).toThrow('is not a node report');
  });

  it('of any shape are read without an exception', () => {
    const report = readReport({
      level: 'Kubelet',
      containers: [1, null, { processes: [{ pools: [{ lastCpus: { a: 1 } }] }] }],
    });
    expect(report.containers).toHaveLength(3);
    expect(occupants(report).size).toBe(0);
  });
});

describe('rows', () => {
  const rows = rowsOf(PODS, new Map([[REPORT.node, REPORT]]));

  it('set planned against running', () => {
    expect(rows.map(row => [row.pod, threadsText(row), drifted(row)])).toEqual([
      ['ranker-0', '2', false],
      ['ranker-1', '2 → 16', true],
      ['embedder-0', '4', false],
      ['far-0', '4', false],
    ]);
  });

  it('give the reason of the number, and what is wrong with its fix', () => {
    expect(why(rows[0])).toEqual({ text: 'limits.cpu is 2', findings: [] });
    expect(why(rows[1]).findings[0].fix).toContain('existingValues: Override');
  });

  it('have nothing running where the agent tells of another pod of that name', () => {
    const recreated = rowsOf(
      [{ ...PODS[0], metadata: { ...PODS[0].metadata, uid: 'another' } }],
      new Map([[REPORT.node, REPORT]])
    );
    expect(recreated[0].running).toBeNull();
  });

  it('of a node are those that its agent tells of, what drifted first', () => {
    expect(rowsOfNode(REPORT).map(row => row.pod)).toEqual(['ranker-1', 'ranker-0', 'embedder-0']);
  });
});

describe('machines', () => {
  it.each(fixture.topologies.map(one => [one.metadata.name, one.spec] as const))(
    'of %s have each CPU once',
    (_, spec) => {
      const cpus = numaNodes(spec).flatMap(node =>
        node.caches.flatMap(cache => cache.cores.flat())
      );
      expect(formatCpus(cpus)).toBe(spec.cpus.online);
      expect(cpus).toHaveLength(parseCpus(spec.cpus.online).length);
    }
  );

  it('are boxes of NUMA nodes and caches', () => {
    const nodes = numaNodes(fixture.topologies[0].spec);
    expect(nodes.map(node => node.caches.map(cache => cache.cores.length))).toEqual([
      [2, 2],
      [2, 2],
    ]);
  });

  it('that say no more than their CPUs are one box', () => {
    expect(numaNodes({ cpus: { online: '0-2' } })).toEqual([
      {
        id: null,
        memoryMib: null,
        caches: [{ id: null, cores: [[0], [1], [2]] }],
      },
    ]);
    expect(numaNodes(undefined)).toEqual([]);
  });

  it('share out the CPU time of a pool over the CPUs where its threads ran', () => {
    const found = occupants(REPORT);
    expect(found.get(0)).toEqual([{ container: 'models/ranker-0/serve', usedCpus: 0.86 }]);
    expect(found.get(1)?.map(one => one.container)).toEqual([
      'models/ranker-0/serve',
      'models/ranker-1/serve',
    ]);
    const all = [...found.values()].flat().reduce((sum, one) => sum + one.usedCpus, 0);
    expect(all).toBeCloseTo(1.61 + 1.98 + 3.4);
  });
});

describe('policies', () => {
  const policy = (spec: unknown, status: unknown = undefined) => ({
    kind: 'InferenceThreading',
    metadata: { namespace: 'models', name: 'rankers' },
    spec,
    status,
  });

  it('ask for their own pods only', () => {
    const spec = {
      podSelector: {
        matchLabels: { app: 'ranker' },
        matchExpressions: [
          { key: 'tier', operator: 'In', values: ['a', 'b'] },
          { key: 'old', operator: 'DoesNotExist' },
          { key: 'zone', operator: 'NotIn', values: ['c'] },
          { key: 'team', operator: 'Exists' },
        ],
      },
    };
    expect(governedSelector(policy(spec))).toBe(
      'raddle.dev/injected=true,app=ranker,tier in (a,b),!old,zone notin (c),team'
    );
    expect(labelSelector({})).toBe('');
  });

  it('govern the pods that say so', () => {
    const read = readPolicy(policy({}));
    expect(PODS.map(pod => governs(read, pod))).toEqual([true, true, true, true]);
    expect(governs({ ...read, namespace: 'other' }, PODS[0])).toBe(false);
    expect(governs({ ...read, name: 'others' }, PODS[0])).toBe(false);
  });

  it('tell what runs only where an agent has told it', () => {
    expect(readPolicy(policy({}, {})).running).toBeNull();
    const { policy: ofPolicy, node: ofNode } = fixture.running;
    expect(readPolicy(policy({}, { running: ofPolicy })).running).toMatchObject({
      containers: 3,
      drifted: 1,
    });
    expect(readRunning(ofNode)).toMatchObject({ containers: 3, drifted: 1 });
    expect(readRunning(ofNode)?.worst[0]).toMatchObject({
      pod: 'ranker-1',
      container: 'serve',
      cause: 'CodeSetsIt',
    });
  });
});

describe('conditions', () => {
  it.each([
    ['Ready', 'True', true],
    ['Ready', 'False', false],
    ['Ready', 'Unknown', false],
    ['Degraded', 'False', true],
    ['Degraded', 'True', false],
    ['Drifted', 'False', true],
    ['Drifted', 'True', false],
  ])('%s %s', (type, status, good) => {
    expect(isGood({ type, status, reason: '', message: '' })).toBe(good);
  });
});

describe('where nothing is told', () => {
  it.each([
    [{ status: 403, message: 'Forbidden' }, 'You may not get pods/proxy in ns'],
    [{ status: 404, message: 'Not Found - not found' }, 'set agent.watch to a value'],
    [
      { status: 503, message: 'Service Unavailable - error trying to reach service: refused' },
      'does not answer',
    ],
    [
      { status: 503, message: 'Service Unavailable - no window yet\n' },
      'agent on n says: no window yet',
    ],
    [
      new Error("the agent's answer is not a node report"),
      "says: the agent's answer is not a node report",
    ],
  ])('by an agent it is said why: %j', (refusal, line) => {
    expect(whyNoReport('n', 'ns', refusal)).toContain(line);
  });

  it('no agent may be found', () => {
    expect(whyNoAgent('n', 'ns')).toContain('No agent of Raddle runs on n (searched in ns)');
    expect(whyNoAgent('n', 'ns', { status: 403 })).toContain('You may not list pods in ns');
  });

  it('only a part is asked for', () => {
    const asked = [
      agentOf('n', 'ns'),
      podsWith('a=b', ''),
      podsWith('a=b', 'ns'),
      topologies(),
      policies('x'),
    ];
    expect(asked.map(question => Number(question.query.limit))).toEqual([1, 100, 100, 500, 500]);
    expect(agentOf('n', 'ns').query.fieldSelector).toContain('spec.nodeName=n');
  });
});

describe('lists of CPUs', () => {
  it.each([
    ['0-3,8', [0, 1, 2, 3, 8]],
    ['', []],
    ['8,0-1,1-2', [0, 1, 2, 8]],
    ['x,3', [3]],
  ])('%s', (text, cpus) => {
    expect(parseCpus(text)).toEqual(cpus);
    expect(parseCpus(formatCpus(cpus))).toEqual(cpus);
  });
});
