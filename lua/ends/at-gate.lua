local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local departure = use 'gate/departure'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local as_text = use 'redis/as-text'

local function end_each(d, from, fetches)
  for at = from, #ends.argv, ends.FIELDS do
    -- Each end may wake other workers, and promotes due jobs, by itself.
    if fetches then d.gate.again = nil end
    local asks = fetches and not ends.dry and ends.kind(ends.argv[at + 5]).wants
    local result, reply = ends.finish(at, fetches, d.gate and d.gate.redis)
    ends.last = ends.last or reply
    if reply then
      local granted, starts = departure.take(d, reply, cmsgpack.unpack(ends.argv[at + 3]).token)
      if starts then result = reply end
      ends.dry = not granted
    else
      if asks and type(result) ~= 'table' then ends.unasked = ends.unasked + 1 end
      -- It may have let its parent in without the gate.
      if fetches and d.gate.order then d.gate.order.forget() end
    end
    ends.results[#ends.results + 1] = result
  end
end

-- Whether groups have places again for which no job was fetched.
local function frees_groups(d)
  local freed, groups = false, d.gate.groups
  if not groups then return false end
  for _, id in ipairs(ends.unseen) do freed = groups:left(id) or freed end
  groups:save()
  return freed
end

-- Ends the jobs from argument `from` on, where something may hold the next ones. call: as in lua/verbs/exchange and
-- gate/departure. Returns the reply.
local function end_at_gate(call, from)
  if ends.count > 1 then call.once = batch_once.handlers(ends.base) end
  local d, results = departure.open(call), ends.results
  local unshaped = not d.lost and not d.shape and not call.allows_unshaped
  ends.remembered = not d.lost and not unshaped and departure.replay(d)
  end_each(d, from, not (d.lost or unshaped or ends.remembered))
  if d.lost then return { -1, as_text.us(d.now), results } end
  local freed = frees_groups(d)
  if unshaped then d.stop = 'unshaped' end
  if ends.remembered then return departure.reply_again(d, results, ends.found + #d.granted < ends.wanted) end
  if unshaped then return departure.reply(d, results, '') end
  -- If no job was looked for, the worker asks for jobs.
  if ends.found == ends.wanted or not (ends.last or #d.fetched > 0) then
    if next(touched.bases) then touched.wake() end
    if freed then wake.one(ends.base) end
    return { 1, as_text.us(d.now), results }
  end
  local asks = departure.settle(d, ends.wanted - ends.found - #d.fetched - ends.unasked)
  departure.save(d)
  departure.remember(d)
  if freed then wake.one(ends.base) end
  return departure.reply(d, results, asks)
end

return end_at_gate
