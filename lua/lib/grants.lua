-- Grants that a worker may ask for again, because their replies were lost: several at once, with the connection.
-- Its calls are numbered, and it never waits for so many of them together.
local GRANTS_KEPT = 64

local function grants_place(grant)
  return tonumber(string.match(grant, '%d+$')) % GRANTS_KEPT
end

local function grants_keep(base, caller, memo, now, memo_ms)
  local key = base .. 'meta:grants:' .. caller
  memo.at = now
  redis.call('HSET', key, grants_place(memo.grant), cmsgpack.pack(memo))
  redis.call('PEXPIRE', key, memo_ms)
end

-- What was granted to this very call, or nil. After memo_ms the locks of its jobs are over.
local function grants_recall(base, caller, grant, now, memo_ms)
  local packed = redis.call('HGET', base .. 'meta:grants:' .. caller, grants_place(grant))
  if not packed then return nil end
  local memo = cmsgpack.unpack(packed)
  if memo.grant ~= grant or now - memo.at > tonumber(memo_ms) * 1000 then return nil end
  return memo
end
