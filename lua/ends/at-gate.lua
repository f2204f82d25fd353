local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local end_kind = use 'ends/kind'
local departure = use 'gate/departure'
local wake = use 'gate/wake'
local as_text = use 'redis/as-text'

local function end_each(d, from, fetches)
  for at = from, #exchanged.argv, ends.FIELDS do
    -- Each end may wake other workers, and promotes due jobs, by itself.
    if fetches then d.gate.again = nil end
    local asks = fetches and not exchanged.dry and end_kind(exchanged.argv[at + 5]).wants
    local result, reply = ends.finish(at, fetches, d.gate and d.gate.redis)
    exchanged.last = exchanged.last or reply
    if reply then
      local granted, starts = departure.take(d, reply, ends.token(at))
      if starts then result = reply end
      exchanged.dry = not granted
    else
      if asks and type(result) ~= 'table' then exchanged.unasked = exchanged.unasked + 1 end
      -- The end may have released its parent without the gate.
      if fetches and d.gate.order then d.gate.order.forget() end
    end
    exchanged.results[#exchanged.results + 1] = result
  end
end

-- Ends the jobs from argument `from` on, where something may hold the next ones. call: as in lua/verbs/exchange and
-- gate/departure. Returns the reply.
local function end_at_gate(call, from)
  if exchanged.count > 1 then call.once = batch_once.handlers(exchanged.base) end
  local d, results = departure.open(call), exchanged.results
  local unshaped = not d.lost and not d.shape and not call.allows_unshaped
  exchanged.remembered = not d.lost and not unshaped and departure.replay(d)
  end_each(d, from, not (d.lost or unshaped or exchanged.remembered))
  if d.lost then return { -1, as_text.us(d.now), results } end
  -- Whether groups have free places again for which no job was fetched.
  local freed, groups = false, d.gate.groups
  for _, id in ipairs(groups and exchanged.unseen or {}) do freed = groups:left(id) or freed end
  if groups then groups:save() end
  if unshaped then d.stop = 'unshaped' end
  if exchanged.remembered then return departure.reply_again(d, results, exchanged.found + #d.granted < exchanged.wanted) end
  if unshaped then return departure.reply(d, results, '') end
  -- If no job was looked for, the worker asks for jobs.
  if exchanged.found == exchanged.wanted or not (exchanged.last or #d.fetched > 0) then
    wake.touched()
    if freed then wake.one(exchanged.base) end
    return { 1, as_text.us(d.now), results }
  end
  local asks = departure.settle(d, exchanged.wanted - exchanged.found - #d.fetched - exchanged.unasked)
  departure.save(d)
  departure.remember(d)
  if freed then wake.one(exchanged.base) end
  return departure.reply(d, results, asks)
end

return end_at_gate
