import {
  DefaultDetailsViewSection,
  registerDetailsViewSectionsProcessor,
  registerPluginSettings,
  registerResourceTableColumnsProcessor,
  registerRoute,
  registerSidebarEntry,
} from '@kinvolk/headlamp-plugin/lib';
import { useReports } from './data';
import { planned, threads } from './model/plan';
import { rowsOf, threadsText } from './model/rows';
import { NodeDetails, Nodes } from './pages/Nodes';
import { Policies } from './pages/Policies';
import { PolicyDetails } from './pages/PolicyDetails';
import { SettingsForm } from './pages/SettingsForm';
import { DeploymentSection, NodeSection, PodSection } from './parts/sections';
import { PLUGIN } from './settings';

const [POLICIES, NODES] = ['raddle-policies', 'raddle-nodes'];

registerSidebarEntry({
  parent: null,
  name: PLUGIN,
  label: 'Raddle',
  icon: 'mdi:speedometer',
  url: '/raddle/policies',
});
registerSidebarEntry({
  parent: PLUGIN,
  name: POLICIES,
  label: 'Policies',
  url: '/raddle/policies',
});
registerSidebarEntry({
  parent: PLUGIN,
  name: NODES,
  label: 'Nodes',
  url: '/raddle/nodes',
});

const routes = [
  {
    path: '/raddle/policies',
    name: POLICIES,
    sidebar: POLICIES,
    component: () => <Policies />,
  },
  {
    path: '/raddle/policies/:namespace/:name',
    name: 'raddle-policy',
    sidebar: POLICIES,
    component: () => <PolicyDetails />,
  },
  {
    path: '/raddle/clusterpolicies/:name',
    name: 'raddle-cluster-policy',
    sidebar: POLICIES,
    component: () => <PolicyDetails />,
  },
  {
    path: '/raddle/nodes',
    name: NODES,
    sidebar: NODES,
    component: () => <Nodes />,
  },
  {
    path: '/raddle/nodes/:name',
    name: 'raddle-node',
    sidebar: NODES,
    component: () => <NodeDetails />,
  },
];
routes.forEach(route => registerRoute({ ...route, exact: true }));

registerDetailsViewSectionsProcessor((resource, sections) => {
  const one = resource?.jsonData;
  const cluster = resource?.cluster ?? '';
  let section;
  if (one?.kind === 'Pod' && planned(one.metadata.annotations).length)
    section = <PodSection pod={one} cluster={cluster} />;
  if (one?.kind === 'Deployment')
    section = <DeploymentSection deployment={one} cluster={cluster} />;
  if (one?.kind === 'Node') section = <NodeSection node={one.metadata.name} cluster={cluster} />;
  if (!section) return sections;
  // After what the object is, before the details of its parts.
  const after =
    sections.findIndex(
      found => (found as { id?: string })?.id === DefaultDetailsViewSection.MAIN_HEADER
    ) + 1;
  return [
    ...sections.slice(0, after),
    { id: PLUGIN, section },
    ...sections.slice(after),
  ] as typeof sections;
});

function PodThreads({ pod, cluster }: { pod: any; cluster: string }) {
  const told = useReports([pod.spec?.nodeName ?? ''], cluster);
  return (
    <>
      {rowsOf([pod], told?.reports ?? new Map())
        .map(threadsText)
        .join(', ')}
    </>
  );
}

registerResourceTableColumnsProcessor(({ id, columns }) => {
  if (id !== 'headlamp-pods') return columns;
  const column = {
    id: 'raddle-threads',
    label: 'Threads',
    gridTemplate: 'min-content',
    getValue: (pod: any) => planned(pod.jsonData.metadata.annotations).map(threads).join(', '),
    // Pods without values ask no agent.
    render: (pod: any) =>
      planned(pod.jsonData.metadata.annotations).length ? (
        <PodThreads pod={pod.jsonData} cluster={pod.cluster} />
      ) : null,
  };
  return [...columns, column as (typeof columns)[number]];
});

registerPluginSettings(PLUGIN, SettingsForm, true);
