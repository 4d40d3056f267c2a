import { Link, SimpleTable, StatusLabel } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Box, Typography } from '@mui/material';
import { cpus, drifted, percent, Row, threadsText, why } from '../model/rows';

function Why({ row }: { row: Row }) {
  const { text, findings } = why(row);
  if (!findings.length) return <>{text}</>;
  return (
    <>
      {findings.map(one => (
        <Box key={one.cause} sx={{ mb: 0.5 }}>
          <StatusLabel status="warning">{one.cause}</StatusLabel> {one.detail}
          {one.fix && <Typography variant="body2">Fix: {one.fix}</Typography>}
        </Box>
      ))}
    </>
  );
}

/** Planned against running, a line for each container. */
export function Containers({
  rows,
  cluster,
  withPod,
}: {
  rows: Row[];
  cluster: string;
  withPod?: boolean;
}) {
  const pod = {
    label: 'Pod',
    gridTemplate: 1.2,
    getter: (row: Row) => (
      <Link
        routeName="pod"
        params={{ namespace: row.namespace, name: row.pod }}
        activeCluster={cluster}
      >
        {row.pod}
      </Link>
    ),
  };
  const columns = [
    ...(withPod ? [pod] : []),
    {
      label: 'Container',
      gridTemplate: 0.8,
      getter: (row: Row) => row.container,
    },
    {
      label: 'Threads',
      gridTemplate: 0.7,
      getter: (row: Row) => (
        <StatusLabel status={drifted(row) ? 'warning' : row.running ? 'success' : ''}>
          {threadsText(row)}
        </StatusLabel>
      ),
    },
    {
      label: 'CPUs used',
      gridTemplate: 0.7,
      getter: (row: Row) => cpus(row.running?.usedCpus ?? null),
    },
    {
      label: 'Limit',
      gridTemplate: 0.5,
      getter: (row: Row) => cpus(row.running?.limitCpus ?? row.plan?.limitCpus ?? null),
    },
    {
      label: 'Throttled',
      gridTemplate: 0.7,
      getter: (row: Row) => percent(row.running?.throttledShare ?? null),
    },
    { label: 'Why', gridTemplate: 3, getter: (row: Row) => <Why row={row} /> },
  ];
  return (
    <SimpleTable
      columns={columns}
      data={rows}
      emptyMessage="No container here has values from Raddle."
    />
  );
}

/** Why something is not there, in a line each. */
export function Lines({ lines }: { lines: (string | undefined)[] }) {
  return (
    <>
      {lines.filter(Boolean).map(line => (
        <Typography key={line} variant="body2" color="text.secondary" sx={{ py: 0.5 }}>
          {line}
        </Typography>
      ))}
    </>
  );
}
