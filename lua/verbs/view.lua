--[[
  Reads queues at one moment of Redis's clock, with the modules that decide. Nothing is written; expired entries are seen
  as ended (redis/unwritten). The work does not grow with a queue: up to some 100 commands for each, 20 more for each
  group or value of a limit, 160 for the holders of its places, 200 more to find such values, up to 100 groups for the
  place of a job, and of its list 10,000 entries at each end.
  KEYS
    [1…]  …:meta:shape of each queue; on a cluster one more, which never exists (redis/commands.ts)
  ARGV
    [1]  what to read: crowd, shape, meter, queue, groups, group, limit, limit in detail, limit values, own limits,
         settings, rows, detail, job or place (lua/views)
    [2]  JSON: its arguments
    [3]  now, µs, if a reader has asked another server; else ''
    [4]  now by the reader's clock, µs: for one that may not ask Redis; else ''
  Returns JSON for each queue, null if it has none.
]]
local redis_now = use 'redis/redis-now'
local unwritten = use 'redis/unwritten'
local view_group = use 'views/group'
local view_job = use 'views/job'
local view_limit = use 'views/limit'
local view_queue = use 'views/queue'

local asked, subject, views = cjson.decode(ARGV[2]), ARGV[1], {}

local function clock()
  if ARGV[3] ~= '' then return tonumber(ARGV[3]) end
  local may_ask, now = pcall(redis_now)
  if may_ask then return now end
  return tonumber(ARGV[4]) or error(now, 0)
end

local function view(key, now)
  if subject == 'crowd' then return view_queue.crowd(string.sub(key, 1, -11)) end
  local q = view_queue.open(key, now)
  if subject == 'shape' then return view_queue.of_shape(q) end
  if subject == 'meter' then return view_queue.of_meter(q) end
  if subject == 'queue' then return view_queue.of_queue(q, asked.nearlyFull) end
  if subject == 'settings' then return view_group.settings(q) end
  if subject == 'groups' then return view_group.of_queue(q, asked.count) end
  if subject == 'group' then return view_group.of_one(q, asked.group, asked.count) end
  if subject == 'limit' then return view_limit.of_one(q, asked.name, asked.keys, asked.tier) end
  if subject == 'limit in detail' then return view_limit.in_detail(q, asked.name, asked.keys, asked.count) end
  if subject == 'limit values' then return view_limit.of_values(q, asked.count) end
  if subject == 'own limits' then return view_limit.settings(q) end
  if subject == 'rows' then return view_job.rows(q, asked.ids, asked.data, asked.worker) end
  if subject == 'detail' then return view_job.detail(q, asked.id, asked.data, asked.logs) end
  if subject == 'job' then return view_job.of_job(q, asked.id, asked.nearlyFull) end
  return view_job.place(q, asked.id, asked.searched)
end

return unwritten(function()
  local now = clock()
  for at = 1, #KEYS do
    if string.sub(KEYS[at], -11) == ':meta:shape' then views[at] = cjson.encode(view(KEYS[at], now) or cjson.null) end
  end
  return views
end)
