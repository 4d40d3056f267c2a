// Builds host/, Headlamp's frontend for tests,.
import react from '@vitejs/plugin-react';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import svgr from 'vite-plugin-svgr';

const require = createRequire(import.meta.url);
const folder = name => dirname(require.resolve(`${name}/package.json`));

/** The icons that Headlamp's sources name, so that no page asks the internet. */
function icons() {
  const named = new Set();
  const look = path => {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.isDirectory()) look(join(path, entry.name));
      else if (/\.(js|tsx?)$/.test(entry.name) && !entry.name.endsWith('.d.ts'))
        for (const [, name] of readFileSync(join(path, entry.name), 'utf8').matchAll(
          /\bmdi:([a-z0-9-]+)/g
        ))
          named.add(name);
    }
  };
  look(join(folder('@kinvolk/headlamp-plugin'), 'lib'));
  const known = new Set(readdirSync(folder('@iconify/icons-mdi')));
  const kept = [...named].filter(name => known.has(`${name}.js`)).sort();
  return [
    "import { addIcon } from '@iconify/react';",
    ...kept.map((name, index) => `import i${index} from '@iconify/icons-mdi/${name}.js';`),
    'export function addIcons() {',
    ...kept.map((name, index) => `addIcon('mdi:${name}', i${index});`),
    '}',
  ].join('\n');
}

export default {
  root: import.meta.dirname,
  define: { global: 'globalThis', 'process.env': {} },
  plugins: [
    {
      name: 'icons',
      resolveId: id => (id === 'virtual:icons' ? '\0icons' : undefined),
      load: id => (id === '\0icons' ? icons() : undefined),
    },
    svgr({ include: '**/*.svg?react' }),
    react(),
  ],
  resolve: {
    alias: [{ find: /^monaco-editor.*/, replacement: join(import.meta.dirname, 'nothing.ts') }],
  },
  build: { minify: false, chunkSizeWarningLimit: 1e6 },
};
