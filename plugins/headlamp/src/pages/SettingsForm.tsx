import { PluginSettingsDetailsProps } from '@kinvolk/headlamp-plugin/lib';
import { NameValueTable } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { TextField } from '@mui/material';
import { settingsOf } from '../settings';

export function SettingsForm({ data, onDataChange }: PluginSettingsDetailsProps) {
  const { namespace, refreshSeconds } = settingsOf(data);
  const change = (part: object) => onDataChange?.({ ...data, ...part });
  return (
    <NameValueTable
      rows={[
        {
          name: "Raddle's namespace",
          value: (
            <TextField
              size="small"
              inputProps={{ 'aria-label': "Raddle's namespace" }}
              value={data?.namespace ?? namespace}
              onChange={event => change({ namespace: event.target.value })}
            />
          ),
        },
        {
          name: 'Refresh interval in seconds',
          value: (
            <TextField
              size="small"
              type="number"
              inputProps={{ 'aria-label': 'Refresh interval in seconds', min: 1 }}
              value={data?.refreshSeconds ?? refreshSeconds}
              onChange={event => change({ refreshSeconds: Number(event.target.value) })}
            />
          ),
        },
      ]}
    />
  );
}
