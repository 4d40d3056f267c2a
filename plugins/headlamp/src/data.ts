// Answers of the API server, asked with the user's own rights, kept until they are old and shared by all that shows them.
import { ApiProxy } from '@kinvolk/headlamp-plugin/lib';
import { useEffect, useState } from 'react';
import { agentOf, Question, Refusal, reportFrom, whyNoAgent, whyNoReport } from './model/asking';
import { NodeReport, readReport } from './model/report';
import { Settings, useSettings } from './settings';

/** What came back: `data`, or `why` there is none; neither while it is under way. */
export interface Answer<T> {
  data?: T;
  why?: string;
}

interface Kept {
  at: number;
  answer: Promise<unknown>;
}

const kept = new Map<string, Kept>();
const MOST_KEPT = 1000;

function remembered<T>(key: string, seconds: number, ask: () => Promise<T>): Promise<T> {
  const known = kept.get(key);
  if (known && Date.now() - known.at < seconds * 1000) return known.answer as Promise<T>;
  if (kept.size >= MOST_KEPT) kept.clear();
  const answer = ask();
  kept.set(key, { at: Date.now(), answer });
  return answer;
}

function ask(question: Question, cluster: string, isJSON = true): Promise<any> {
  return ApiProxy.clusterRequest(
    question.path,
    { cluster, isJSON, autoLogoutOnAuthError: false },
    question.query
  );
}

/** Asks, and again every `refreshSeconds` while the page is seen. A question with the same key is asked once for all. */
function useAnswer<T>(key: string, load: (seconds: number) => Promise<T>): Answer<T> {
  const { refreshSeconds } = useSettings();
  const [answer, setAnswer] = useState<Answer<T> & { key?: string }>({});
  useEffect(() => {
    let gone = false;
    const look = () => {
      if (document.visibilityState === 'hidden') return;
      load(refreshSeconds).then(
        data => gone || setAnswer({ key, data }),
        error =>
          gone ||
          setAnswer({
            key,
            why: error instanceof Error ? error.message : String(error),
          })
      );
    };
    look();
    const timer = setInterval(look, refreshSeconds * 1000);
    return () => {
      gone = true;
      clearInterval(timer);
    };
    // `key` has all that `load` depends on.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key, refreshSeconds]);
  return answer.key === key ? answer : {};
}

/** The JSON that the API server answers, null where there is no question. */
export function useJson(question: Question | null, cluster: string): Answer<any> {
  const key = JSON.stringify([cluster, question]);
  return useAnswer(key, seconds =>
    // A little less than the refresh, so that a timer that is early does not get the old answer.
    question ? remembered(key, seconds * 0.9, () => ask(question, cluster)) : Promise.resolve(null)
  );
}

/** A node's report, or why there is none. Never fails. */
async function reportOf(
  node: string,
  cluster: string,
  { namespace }: Settings
): Promise<Answer<NodeReport>> {
  let agent: string | undefined;
  try {
    agent = (await ask(agentOf(node, namespace), cluster)).items?.[0]?.metadata?.name;
  } catch (error) {
    return { why: whyNoAgent(node, namespace, error as Refusal) };
  }
  if (!agent) return { why: whyNoAgent(node, namespace) };
  try {
    // Not as JSON: what an agent says where it has no report is text.
    const response = await ask(reportFrom(agent, namespace), cluster, false);
    return { data: readReport(await response.json()) };
  } catch (error) {
    return { why: whyNoReport(node, namespace, error as Refusal) };
  }
}

/** Reports by node, and a line for each node without one. */
export interface Told {
  reports: Map<string, NodeReport>;
  why: string[];
}

/** What the agents of some nodes tell; undefined until they have answered. */
export function useReports(nodes: string[], cluster: string): Told | undefined {
  const settings = useSettings();
  const names = [...new Set(nodes.filter(Boolean))].sort();
  const key = JSON.stringify([cluster, settings.namespace, names]);
  const { data } = useAnswer(key, async seconds => {
    const answers = await Promise.all(
      names.map(node =>
        remembered(
          JSON.stringify([cluster, settings.namespace, 'report', node]),
          seconds * 0.9,
          () => reportOf(node, cluster, settings)
        )
      )
    );
    const told: Told = { reports: new Map(), why: [] };
    answers.forEach((answer, index) => {
      if (answer.data) told.reports.set(names[index], answer.data);
      else if (answer.why) told.why.push(answer.why);
    });
    return told;
  });
  return data;
}
