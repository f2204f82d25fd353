-- What was changed, by whom and why: for people.
local HISTORY_KEPT = 1000

-- kind: declared, override, cleared, pause, resume or restored. change: JSON. until_ms: '' where it has no end
local function history_note(base, kind, by, reason, change, until_ms)
  redis.call('XADD', base .. 'meta:history', 'MAXLEN', '~', HISTORY_KEPT, '*', 'kind', kind, 'by', by, 'reason', reason,
    'change', change, 'until', until_ms)
end

-- What the other side said is a list of its own: there may be much of it.
local function history_note_feedback(base, change)
  redis.call('XADD', base .. 'meta:feedback', 'MAXLEN', '~', HISTORY_KEPT, '*', 'change', change)
end
