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
          name: 'Seconds between two looks',
          value: (
            <TextField
              size="small"
              type="number"
              inputProps={{ 'aria-label': 'Seconds between two looks', min: 1 }}
              value={data?.refreshSeconds ?? refreshSeconds}
              onChange={event => change({ refreshSeconds: Number(event.target.value) })}
            />
          ),
        },
      ]}
    />
  );
}
