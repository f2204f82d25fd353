-- The history of changes, with author and reason.
local history = { KEPT = 1000 }
-- A change that is resent within this time, because its reply was lost, counts once. The same change with and without
-- an end counts twice.
history.AGAIN_MS = 10000
-- Omitted changes are kept separately, so that a resent call finds its own.
history.AGAIN_KEPT, history.AGAIN_KEPT_MS = 1000, 3600000
-- A pause whose end moves by more than this is a new entry: people look for the end.
history.SAME_END_MS = 500

function history.at_ms(found)
  return tonumber(string.match(found[1], '^%d+'))
end

function history.is_same(found, entry)
  for i = 1, 8 do
    if found[2][i] ~= entry[i] then return false end
  end
  return true
end

function history.has(key, now_ms, entry, until_ms)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last or now_ms - history.at_ms(last) > history.AGAIN_MS or not history.is_same(last, entry) then return false end
  if (until_ms == '') ~= (last[2][10] == '') then return false end
  local later_ms = (tonumber(until_ms) or 0) - (tonumber(last[2][10]) or 0)
  return entry[2] ~= 'pause' or later_ms <= history.SAME_END_MS
end

-- Whether a change that may have been made before is in the history, or was omitted by history.has. It must not be
-- repeated: another change may have followed. sent_us: when it was first sent, nil if it is certainly new; lasts_ms: ''
-- if it has no end; ends_ms: its end, if that does not follow from lasts_ms
function history.made(base, sent_us, kind, by, reason, change, lasts_ms, ends_ms)
  if not sent_us then return false end
  local entry = { 'kind', kind, 'by', by, 'reason', reason, 'change', change }
  local function is_it(found)
    local until_ms = tonumber(found[2][10])
    if (lasts_ms == '') ~= not until_ms or not history.is_same(found, entry) then return false end
    if not until_ms then return true end
    local expected_ms = ends_ms or history.at_ms(found) + tonumber(lasts_ms)
    return math.abs(until_ms - expected_ms) <= history.SAME_END_MS
  end
  for _, name in ipairs({ 'meta:history', 'meta:history:again' }) do
    for _, found in ipairs(redis.call('XREVRANGE', base .. name, '+', math.floor(sent_us / 1000))) do
      if is_it(found) then return true end
    end
  end
  return false
end

-- kind: declared, override, cleared, pause, resume, redrive, restored, group or limit. change: JSON. until_ms: '' if it
-- has no end
function history.note(base, now, kind, by, reason, change, until_ms)
  local key, entry = base .. 'meta:history', { 'kind', kind, 'by', by, 'reason', reason, 'change', change }
  local again = history.has(key, now / 1000, entry, until_ms)
  entry[9], entry[10] = 'until', until_ms
  if not again then
    redis.call('XADD', key, 'MAXLEN', '~', history.KEPT, '*', unpack(entry))
    return
  end
  redis.call('XADD', key .. ':again', 'MAXLEN', '~', history.AGAIN_KEPT, '*', unpack(entry))
  redis.call('PEXPIRE', key .. ':again', history.AGAIN_KEPT_MS)
end

return history
