// Headlamp's frontend as its plugin package publishes it: store, router, pages, sidebar and loader of plugins are theirs.
// The package leaves out the frame around them (top bar, dialogs), so that much is ours, for tests and pictures only.
import '@kinvolk/headlamp-plugin/lib/i18n/config';
import Plugins from '@kinvolk/headlamp-plugin/lib/plugin/Plugins';
import RouteSwitcher, {
  PreviousRouteProvider,
} from '@kinvolk/headlamp-plugin/lib/components/App/RouteSwitcher';
import { useCurrentAppTheme } from '@kinvolk/headlamp-plugin/lib/components/App/themeSlice';
import Sidebar from '@kinvolk/headlamp-plugin/lib/components/Sidebar';
import { queryClient } from '@kinvolk/headlamp-plugin/lib/lib/queryClient';
import { createMuiTheme } from '@kinvolk/headlamp-plugin/lib/lib/themes';
import { setConfig } from '@kinvolk/headlamp-plugin/lib/redux/configSlice';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import Box from '@mui/material/Box';
import Container from '@mui/material/Container';
import CssBaseline from '@mui/material/CssBaseline';
import { ThemeProvider } from '@mui/material/styles';
import { QueryClientProvider } from '@tanstack/react-query';
import { SnackbarProvider } from 'notistack';
import { createRoot } from 'react-dom/client';
import { Provider, useSelector } from 'react-redux';
import { BrowserRouter } from 'react-router-dom';
import { addIcons } from 'virtual:icons';

addIcons();
store.dispatch(
  setConfig({ clusters: { main: { name: 'main', auth_type: '', meta_data: {} } } } as any)
);

function Frame() {
  const loaded = useSelector((state: any) => state.plugins.loaded);
  return (
    <ThemeProvider theme={createMuiTheme(useCurrentAppTheme())}>
      <CssBaseline enableColorScheme />
      <SnackbarProvider>
        <BrowserRouter>
          <PreviousRouteProvider>
            <Plugins />
            <Box sx={{ display: 'flex', height: '100dvh' }}>
              <Sidebar />
              <Box component="main" sx={{ flexGrow: 1, overflow: 'auto' }}>
                <Container maxWidth="xl">
                  {loaded && <RouteSwitcher requiresToken={() => false} />}
                </Container>
              </Box>
            </Box>
          </PreviousRouteProvider>
        </BrowserRouter>
      </SnackbarProvider>
    </ThemeProvider>
  );
}

createRoot(document.getElementById('root')!).render(
  <Provider store={store}>
    <QueryClientProvider client={queryClient}>
      <Frame />
    </QueryClientProvider>
  </Provider>
);
