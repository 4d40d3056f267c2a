import { ConfigStore } from '@kinvolk/headlamp-plugin/lib';

export const PLUGIN = 'raddle';

export interface Settings {
  /** Where Raddle, and so its agents, are installed. */
  namespace: string;
  refreshSeconds: number;
}

const DEFAULTS: Settings = { namespace: 'raddle-system', refreshSeconds: 10 };
const useStored = new ConfigStore<Partial<Settings>>(PLUGIN).useConfig();

/** The settings, each the default where it is not set or can't be used. */
export function settingsOf(stored: Partial<Settings> | undefined): Settings {
  const seconds = Number(stored?.refreshSeconds);
  return {
    namespace: stored?.namespace || DEFAULTS.namespace,
    refreshSeconds: seconds >= 1 ? seconds : DEFAULTS.refreshSeconds,
  };
}

export function useSettings(): Settings {
  return settingsOf(useStored());
}
