import { K8s } from '@kinvolk/headlamp-plugin/lib';
import { Link, Loader, SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Box, Typography } from '@mui/material';
import { useParams } from 'react-router-dom';
import { useJson } from '../data';
import { MOST_NODES, topologies } from '../model/asking';
import { readRunning } from '../model/policy';
import { Lines } from '../parts/Containers';
import { NodeSection } from '../parts/sections';

const COLOURS = {
  drifted: 'warning.main',
  planned: 'success.main',
  unknown: 'divider',
};

function Tile({ node, cluster }: { node: any; cluster: string }) {
  const { cpus = '?', cores = '?', numaNodes = 0 } = node.spec?.counts ?? {};
  const running = readRunning(node.status?.running);
  const state = !running ? 'unknown' : running.drifted ? 'drifted' : 'planned';
  const invalid = (node.status?.conditions ?? []).find((one: any) => one.status === 'False');
  return (
    <Box
      data-node={node.metadata.name}
      data-state={state}
      sx={{
        border: 1,
        borderColor: 'divider',
        borderLeft: 6,
        borderLeftColor: COLOURS[state],
        borderRadius: 1,
        p: 1,
      }}
    >
      <Link routeName="raddle-node" params={{ name: node.metadata.name }} activeCluster={cluster}>
        {node.metadata.name}
      </Link>
      <Typography variant="body2" color="text.secondary">
        {cpus} CPUs, {cores} cores
        {numaNodes > 1 ? `, ${numaNodes} NUMA nodes` : ''}
      </Typography>
      <Typography variant="body2">
        {running
          ? `${running.drifted} of ${running.containers} containers drifted`
          : 'no data about containers'}
      </Typography>
      {invalid && (
        <Typography variant="body2" color="error" title={invalid.message}>
          {invalid.type}: {invalid.reason}
        </Typography>
      )}
    </Box>
  );
}

/** The cluster as tiles, those with drifted containers first. */
export function Nodes() {
  const cluster = K8s.useCluster() ?? '';
  const { data, why } = useJson(topologies(), cluster);
  if (!data && !why) return <Loader title="Loading nodes" />;
  const drift = (node: any) => readRunning(node.status?.running)?.drifted ?? 0;
  const nodes = [...(data?.items ?? [])].sort((a, b) => drift(b) - drift(a));
  const more = data?.metadata?.continue && `Only the first ${MOST_NODES} nodes are shown.`;
  const none = data && !nodes.length && 'No node has a NodeCPUTopology: no agent of Raddle runs.';
  return (
    <SectionBox title="Node topologies">
      <Lines
        lines={[why && `NodeCPUTopologies can't be listed: ${why}`, none || undefined, more]}
      />
      <Box
        sx={{
          display: 'grid',
          gridTemplateColumns: 'repeat(auto-fill, minmax(260px, 1fr))',
          gap: 1,
          py: 1,
        }}
      >
        {nodes.map(node => (
          <Tile key={node.metadata.name} node={node} cluster={cluster} />
        ))}
      </Box>
    </SectionBox>
  );
}

/** One node's cores and containers. */
export function NodeDetails() {
  const { name } = useParams<{ name: string }>();
  const cluster = K8s.useCluster() ?? '';
  return (
    <>
      <SectionBox title={name} backLink>
        <Link routeName="node" params={{ name }} activeCluster={cluster}>
          The node itself
        </Link>
      </SectionBox>
      <NodeSection node={name} cluster={cluster} />
    </>
  );
}
