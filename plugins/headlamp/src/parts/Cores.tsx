import { Box, Typography, useTheme } from '@mui/material';
import { formatCpus } from '../model/cpus';
import { nameOf, numaNodes, Occupant, occupants } from '../model/machine';
import { NodeReport } from '../model/report';
import { cpus as rounded } from '../model/rows';

// Told apart also by people who see few colours (Okabe and Ito).
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const MOST_OPAQUE = 0xff;

function Cpu({
  cpu,
  those,
  colour,
}: {
  cpu: number;
  those: Occupant[];
  colour: (container: string) => string;
}) {
  const theme = useTheme();
  const used = Math.min(
    1,
    those.reduce((sum, one) => sum + one.usedCpus, 0)
  );
  // What ran there at all is seen, what used all of it is full.
  const alpha = Math.round(MOST_OPAQUE * (0.3 + 0.7 * used))
    .toString(16)
    .padStart(2, '0');
  const said =
    those.map(one => `${one.container} ${rounded(one.usedCpus)}`).join(', ') ||
    'no governed thread ran here last';
  return (
    <Box
      data-cpu={cpu}
      title={`CPU ${cpu}: ${said}`}
      sx={{
        width: 34,
        height: 26,
        fontSize: 12,
        display: 'flex',
        alignItems: 'center',
        justifyContent: 'center',
        borderRadius: 0.5,
        color: those.length && used > 0.4 ? '#fff' : theme.palette.text.primary,
        background: those.length
          ? `${colour(those[0].container)}${alpha}`
          : theme.palette.action.hover,
        borderBottom: those.length > 1 ? `4px solid ${colour(those[1].container)}` : undefined,
      }}
    >
      {cpu}
    </Box>
  );
}

function Framed({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <Box sx={{ border: 1, borderColor: 'divider', borderRadius: 1, p: 1 }}>
      <Typography variant="caption" color="text.secondary">
        {name}
      </Typography>
      <Box sx={{ display: 'flex', flexWrap: 'wrap', gap: 1, mt: 0.5 }}>{children}</Box>
    </Box>
  );
}

function memory(mib: number | null): string {
  if (mib === null) return '';
  return mib < 1024 ? `, ${mib} MiB` : `, ${Math.round(mib / 1024)} GiB`;
}

/** A node's CPUs by NUMA node, shared cache and core, each with the container whose threads ran there last. */
export function Cores({ spec, report }: { spec: unknown; report: NodeReport | undefined }) {
  const found = report ? occupants(report) : new Map<number, Occupant[]>();
  const names = report ? report.containers.map(nameOf) : [];
  const colour = (container: string) =>
    COLOURS[Math.max(0, names.indexOf(container)) % COLOURS.length];
  const seen = new Set([...found.values()].flat().map(one => one.container));
  return (
    <Box data-picture="cores">
      <Box sx={{ display: 'flex', flexWrap: 'wrap', gap: 1 }}>
        {numaNodes(spec).map((node, place) => (
          <Framed
            key={node.id ?? place}
            name={(node.id === null ? 'CPUs' : `NUMA node ${node.id}`) + memory(node.memoryMib)}
          >
            {node.caches.map((cache, at) => (
              <Framed
                key={cache.id ?? at}
                name={`${cache.id === null ? 'CPUs' : `L3 ${cache.id}: CPUs`} ${formatCpus(
                  cache.cores.flat()
                )}`}
              >
                {cache.cores.map(core => (
                  <Box
                    key={core[0]}
                    sx={{
                      border: 1,
                      borderColor: 'divider',
                      borderRadius: 1,
                      p: 0.25,
                    }}
                  >
                    {core.map(cpu => (
                      <Cpu key={cpu} cpu={cpu} those={found.get(cpu) ?? []} colour={colour} />
                    ))}
                  </Box>
                ))}
              </Framed>
            ))}
          </Framed>
        ))}
      </Box>
      <Box sx={{ display: 'flex', flexWrap: 'wrap', gap: 2, mt: 1 }}>
        {[...new Set(names)]
          .filter(name => seen.has(name))
          .map(name => (
            <Typography
              key={name}
              variant="body2"
              sx={{ display: 'flex', alignItems: 'center', gap: 0.5 }}
            >
              <Box
                component="span"
                sx={{
                  width: 12,
                  height: 12,
                  borderRadius: 0.5,
                  background: colour(name),
                }}
              />
              {name}
            </Typography>
          ))}
      </Box>
    </Box>
  );
}
