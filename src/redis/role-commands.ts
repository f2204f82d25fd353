// Written by `npm run acl`: no program has to search the scripts for it.

/** The commands that each role sends, itself and in its scripts, in lower case; `client|setname` is a subcommand. */
export const ROLE_COMMANDS = {
  producer:
    'client|setname del eval evalsha exec exists fcall get hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hvals incr info lindex llen lpos lpush lrange lrem ltrim mget multi persist pexpire pexpireat ping psetex pttl publish rename rpop rpoplpush rpush sadd scard select set sismember smembers srem sscan time type unlink wait xadd xread xrevrange xtrim zadd zcard zcount zlexcount zmscore zpopmin zrange zrangebylex zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore zunionstore',
  worker:
    'bzpopmin client|info client|list client|setname del eval evalsha exec exists fcall get hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hvals incr info lindex llen lmove lpos lpush lrange lrem ltrim mget multi persist pexpire pexpireat ping psetex pttl publish rename rpop rpoplpush rpush sadd scard select set setrange sismember smembers srem sscan subscribe time type unlink unsubscribe wait xadd xread xrevrange xtrim zadd zcard zcount zlexcount zmscore zpopmin zrange zrangebylex zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore zunionstore',
  gateway:
    'client|setname del eval evalsha exec exists fcall get hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hvals incr info lindex llen lpos lpush lrange lrem ltrim mget multi persist pexpire pexpireat ping psetex pttl publish rename rpop rpoplpush rpush sadd scard select set sismember smembers srem sscan subscribe time type unlink unsubscribe wait xadd xread xrevrange xtrim zadd zcard zcount zlexcount zmscore zpopmin zrange zrangebylex zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore zunionstore',
  observer:
    'client|setname eval_ro evalsha_ro exists get hget hgetall hmget info lindex llen lpos lrange ping pttl scard select smembers time xlen xrange xrevrange zcard zcount zlexcount zrange zrangebyscore zrank zrevrangebyscore zscore',
  operator:
    'acl|whoami bzpopmin client|info client|list client|setname del eval eval_ro evalsha evalsha_ro exec exists fcall function|delete function|list function|load get hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hvals incr info lindex llen lmove lpop lpos lpush lrange lrem lset ltrim mget multi persist pexpire pexpireat ping psetex pttl publish rename rpop rpoplpush rpush sadd scan scard select set setrange sismember smembers srem sscan subscribe time type unlink unsubscribe wait xadd xlen xrange xread xrevrange xtrim zadd zcard zcount zlexcount zmscore zpopmin zrange zrangebylex zrangebyscore zrank zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore zunionstore',
  limiter:
    'client|setname del eval evalsha exists fcall get hexists hget hgetall hmget hset info lindex llen mget pexpire pexpireat ping psetex pttl publish sadd select set smembers srem subscribe time unlink unsubscribe xadd zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank zremrangebyscore zrevrange zrevrangebyscore zscore zunionstore',
}

/** The kind of a program, as Redis sees it. */
export type Role = keyof typeof ROLE_COMMANDS
