--- @include "text"

-- What was changed, by whom and why: for people.
local HISTORY_KEPT = 1000
-- A change that is sent again because its reply was lost is one.
local HISTORY_AGAIN_MS = 10000

local function history_has(key, now_ms, entry)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last or now_ms - tonumber(string.match(last[1], '^%d+')) > HISTORY_AGAIN_MS then return false end
  for i = 1, 8 do
    if last[2][i] ~= entry[i] then return false end
  end
  return true
end

-- kind: declared, override, cleared, pause, resume, redrive or restored. change: JSON. until_ms: '' where it has no end
local function history_note(base, now, kind, by, reason, change, until_ms)
  local key, entry = base .. 'meta:history', { 'kind', kind, 'by', by, 'reason', reason, 'change', change }
  if history_has(key, now / 1000, entry) then return end
  entry[9], entry[10] = 'until', until_ms
  redis.call('XADD', key, 'MAXLEN', '~', HISTORY_KEPT, '*', unpack(entry))
end

-- What the other side said is a list of its own: there may be much of it.
local function history_note_feedback(base, change)
  redis.call('XADD', base .. 'meta:feedback', 'MAXLEN', '~', HISTORY_KEPT, '*', 'change', change)
end
