import { K8s } from '@kinvolk/headlamp-plugin/lib';
import {
  Link,
  Loader,
  NameValueTable,
  SectionBox,
  SimpleTable,
  StatusLabel,
} from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useParams } from 'react-router-dom';
import { useJson } from '../data';
import { policy as question } from '../model/asking';
import { Condition, governedSelector, governs, isGood, readPolicy, Worst } from '../model/policy';
import { Lines } from '../parts/Containers';
import { Selected } from '../parts/sections';
import { PLURALS } from './Policies';

const CONDITIONS = [
  { label: 'Condition', getter: (one: Condition) => one.type },
  {
    label: 'Status',
    gridTemplate: 0.6,
    getter: (one: Condition) => (
      <StatusLabel status={isGood(one) ? 'success' : 'warning'}>{one.status}</StatusLabel>
    ),
  },
  { label: 'Reason', getter: (one: Condition) => one.reason },
  {
    label: 'Message',
    gridTemplate: 4,
    getter: (one: Condition) => one.message,
  },
];

function worst(cluster: string) {
  return [
    {
      label: 'Pod',
      getter: (one: Worst) => (
        <Link
          routeName="pod"
          params={{ namespace: one.namespace, name: one.pod }}
          activeCluster={cluster}
        >
          {one.pod}
        </Link>
      ),
    },
    {
      label: 'Cause',
      gridTemplate: 0.8,
      getter: (one: Worst) => <StatusLabel status="warning">{one.cause}</StatusLabel>,
    },
    { label: 'Seen', gridTemplate: 3, getter: (one: Worst) => one.detail },
  ];
}

/** One policy: its status, what the agents found worst, and its pods. */
export function PolicyDetails() {
  const { namespace = '', name = '' } = useParams<{
    namespace?: string;
    name?: string;
  }>();
  const cluster = K8s.useCluster() ?? '';
  const kind = namespace ? 'InferenceThreading' : 'ClusterInferenceThreading';
  const { data, why } = useJson(question(PLURALS[kind], namespace, name), cluster);
  if (!data)
    return why ? (
      <Lines lines={[`${kind} ${name} can't be read: ${why}`]} />
    ) : (
      <Loader title="Loading the policy" />
    );
  const found = readPolicy({ ...data, kind });
  const running = found.running;
  return (
    <>
      <SectionBox title={`${kind} ${name}`} backLink>
        <NameValueTable
          rows={[
            { name: 'Namespace', value: namespace || 'all' },
            { name: 'Objective', value: found.objective || 'Latency' },
            { name: 'Mode', value: found.mode, hide: !found.mode },
            {
              name: 'Governed pods',
              value: `${found.matched ?? '–'}, ${found.injected ?? '–'} with values, ${
                found.stale ?? '–'
              } stale`,
            },
            { name: 'Threads', value: found.threads, hide: !found.threads },
            {
              name: 'Drifted',
              value: running
                ? `${running.drifted} of ${running.containers} containers`
                : 'not known: no agent observes containers (agent.watch)',
            },
          ]}
        />
      </SectionBox>
      {!!found.conditions.length && (
        <SectionBox title="Conditions">
          <SimpleTable columns={CONDITIONS} data={found.conditions} />
        </SectionBox>
      )}
      {!!running?.worst.length && (
        <SectionBox title="Worst">
          <SimpleTable columns={worst(cluster)} data={running.worst} />
        </SectionBox>
      )}
      <SectionBox title="Pods">
        <Selected
          selector={governedSelector(data)}
          namespace={namespace}
          cluster={cluster}
          keep={pod => governs(found, pod)}
        />
      </SectionBox>
    </>
  );
}
