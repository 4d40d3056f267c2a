import { SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useJson, useReports } from '../data';
import { MOST_PODS, podsWith, topology } from '../model/asking';
import { GOVERNED_BY } from '../model/plan';
import { labelSelector } from '../model/policy';
import { ofWindow } from '../model/report';
import { Pod, rowsOf, rowsOfNode } from '../model/rows';
import { Containers, Lines } from './Containers';
import { Cores } from './Cores';

/** Rows of some pods, with what their nodes' agents tell. */
export function Governed({
  pods,
  cluster,
  withPod,
}: {
  pods: Pod[];
  cluster: string;
  withPod?: boolean;
}) {
  const told = useReports(
    pods.map(pod => pod.spec?.nodeName ?? ''),
    cluster
  );
  return (
    <>
      <Containers
        rows={rowsOf(pods, told?.reports ?? new Map())}
        cluster={cluster}
        withPod={withPod}
      />
      <Lines lines={told?.why ?? []} />
    </>
  );
}

/** On a pod's page. A pod without values of Raddle has no such section. */
export function PodSection({ pod, cluster }: { pod: Pod; cluster: string }) {
  const policy = pod.metadata.annotations?.[GOVERNED_BY];
  return (
    <SectionBox title="Raddle">
      <Lines lines={[policy && `Governed by ${policy}.`]} />
      <Governed pods={[pod]} cluster={cluster} />
    </SectionBox>
  );
}

/** The pods of a selector, at most one page of them. */
export function Selected({
  selector,
  namespace,
  cluster,
  keep,
}: {
  selector: string;
  namespace: string;
  cluster: string;
  keep?: (pod: Pod) => boolean;
}) {
  const { data, why } = useJson(podsWith(selector, namespace), cluster);
  const pods: Pod[] = (data?.items ?? []).filter(keep ?? (() => true));
  const more = data?.metadata?.continue && `Only the first ${MOST_PODS} pods are shown.`;
  return (
    <>
      <Governed pods={pods} cluster={cluster} withPod />
      <Lines lines={[why && `Its pods can't be listed: ${why}`, more]} />
    </>
  );
}

/** On a Deployment's page. */
export function DeploymentSection({ deployment, cluster }: { deployment: any; cluster: string }) {
  const selector = labelSelector(deployment.spec?.selector);
  return (
    <SectionBox title="Raddle">
      <Selected selector={selector} namespace={deployment.metadata.namespace} cluster={cluster} />
    </SectionBox>
  );
}

/** On a node's page, Headlamp's and ours. */
export function NodeSection({ node, cluster }: { node: string; cluster: string }) {
  const { data, why } = useJson(topology(node), cluster);
  const told = useReports([node], cluster);
  const report = told?.reports.get(node);
  return (
    <SectionBox title="Raddle">
      <Lines
        lines={[
          why && `The node's CPUs are not known: ${why}`,
          ...(told?.why ?? []),
          report && ofWindow(report),
        ]}
      />
      {data && <Cores spec={data.spec} report={report} />}
      {report && <Containers rows={rowsOfNode(report)} cluster={cluster} withPod />}
    </SectionBox>
  );
}
