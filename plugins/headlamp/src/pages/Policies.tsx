import { K8s } from '@kinvolk/headlamp-plugin/lib';
import {
  Link,
  SectionBox,
  SimpleTable,
  StatusLabel,
} from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useJson } from '../data';
import { policies } from '../model/asking';
import { Policy, readPolicy } from '../model/policy';
import { Lines } from '../parts/Containers';

export const PLURALS: Record<string, string> = {
  InferenceThreading: 'inferencethreadings',
  ClusterInferenceThreading: 'clusterinferencethreadings',
};

function Ready({ policy }: { policy: Policy }) {
  const ready = policy.conditions.find(one => one.type === 'Ready');
  if (!ready) return <>–</>;
  return (
    <StatusLabel status={ready.status === 'True' ? 'success' : 'error'} title={ready.message}>
      {ready.status === 'True' ? 'Ready' : ready.reason}
    </StatusLabel>
  );
}

function Drifted({ policy }: { policy: Policy }) {
  if (!policy.running) return <>–</>;
  const { drifted, containers } = policy.running;
  return (
    <StatusLabel
      status={drifted ? 'warning' : 'success'}
    >{`${drifted} of ${containers}`}</StatusLabel>
  );
}

/** All policies: how many pods each governs, the threads that these got, and how many containers run otherwise. */
export function Policies() {
  const cluster = K8s.useCluster() ?? '';
  const own = useJson(policies(PLURALS.InferenceThreading), cluster);
  const all = useJson(policies(PLURALS.ClusterInferenceThreading), cluster);
  const read = (answer: typeof own, kind: string) =>
    (answer.data?.items ?? []).map((one: object) => readPolicy({ ...one, kind }));
  const found: Policy[] = [
    ...read(all, 'ClusterInferenceThreading'),
    ...read(own, 'InferenceThreading'),
  ];
  const columns = [
    {
      label: 'Name',
      gridTemplate: 1.5,
      getter: (one: Policy) => (
        <Link
          routeName={one.namespace ? 'raddle-policy' : 'raddle-cluster-policy'}
          params={one.namespace ? { namespace: one.namespace, name: one.name } : { name: one.name }}
          activeCluster={cluster}
        >
          {one.name}
        </Link>
      ),
    },
    { label: 'Namespace', getter: (one: Policy) => one.namespace || 'all' },
    { label: 'Objective', getter: (one: Policy) => one.objective || 'Latency' },
    {
      label: 'Pods',
      gridTemplate: 0.6,
      getter: (one: Policy) => one.matched ?? '–',
    },
    {
      label: 'With values',
      gridTemplate: 0.7,
      getter: (one: Policy) => one.injected ?? '–',
    },
    {
      label: 'Stale',
      gridTemplate: 0.6,
      getter: (one: Policy) => one.stale ?? '–',
    },
    {
      label: 'Threads',
      gridTemplate: 0.7,
      getter: (one: Policy) => one.threads || '–',
    },
    {
      label: 'Drifted',
      gridTemplate: 0.8,
      getter: (one: Policy) => <Drifted policy={one} />,
    },
    {
      label: 'State',
      gridTemplate: 0.8,
      getter: (one: Policy) => <Ready policy={one} />,
    },
  ];
  const loading = !own.data && !own.why;
  return (
    <SectionBox title="Raddle's policies">
      <SimpleTable
        columns={columns}
        data={loading ? null : found}
        emptyMessage="There are no policies."
      />
      <Lines
        lines={[
          own.why && `InferenceThreadings can't be listed: ${own.why}`,
          all.why && `ClusterInferenceThreadings can't be listed: ${all.why}`,
        ]}
      />
    </SectionBox>
  );
}
